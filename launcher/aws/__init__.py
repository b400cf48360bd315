"""Calls to AWS: sessions, errors, masking, retries, threads, and the upload of the code.

Not here: what is asked (`launcher.account`, `jobs`, `cost`).
"""
