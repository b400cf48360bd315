"""Checks of the data in S3: buckets, prefixes, manifests, sizes, storage classes."""
