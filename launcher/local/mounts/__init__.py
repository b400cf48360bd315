"""Programs that mount folders of buckets by FUSE: how each is started, and how its mount ends.

Used by local runs for FastFile. Not here: reading the mounted files (`sagemaker_channels/readers/mounted.py`).
"""
