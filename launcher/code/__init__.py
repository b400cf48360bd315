"""The user's code on its way into the container: which files are sent, and the archive they are sent in.

Not here: the upload (`aws.code_upload`) and the request's members for it (`planning`).
"""
