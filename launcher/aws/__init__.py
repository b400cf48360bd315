"""Calls to AWS: sessions, errors, masking, retries, threads, the objects of S3, and the upload of the code.

Not here: what is asked (`launcher.account`, `jobs`, `cost`).
"""
