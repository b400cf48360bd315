"""What plan, account checks and local runs share about S3: URIs, manifests, and the bytes of an object as chunks.

Not here: the objects themselves (`aws.remote_objects`, `local.s3_server`), and what a channel selects (`local.channels`).
"""
