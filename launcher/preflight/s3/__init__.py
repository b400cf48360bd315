"""Checks of what S3 contains: buckets, prefixes, manifests, sizes, storage classes."""
