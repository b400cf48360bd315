"""The state of the embedded S3 server: objects, uploads in parts, checksums, listings.

Not here: HTTP (the modules above).
"""
