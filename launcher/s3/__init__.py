"""What plan, account checks and local runs share about S3: URIs, manifests, an object's bytes in chunks, and folders in its order.

Not here: the objects themselves (`aws.remote_objects`, `local.s3_server`), and what a channel selects (`local.channels`).
"""
