"""S3 as plan, preflight and local runs share it: URIs, manifests, and reading an object to its end.

Not here: the embedded server (`local.s3_server`), and what a channel selects (`local.data`).
"""
