"""Checks of permissions: the role, its policies, bucket policies, KMS keys."""
