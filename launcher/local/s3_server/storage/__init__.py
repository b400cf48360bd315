"""The state of the embedded S3 server: objects, uploads in parts, checksums, listings.

HTTP is in the modules of the package above.
"""
