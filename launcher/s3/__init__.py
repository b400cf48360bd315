"""What plan, account checks and local runs share about S3: URIs, manifests, and reading an object to its end.

Not here: the embedded server (`local.s3_server`), and what a channel selects (`local.data`).
"""
