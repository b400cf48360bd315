"""Checks of permissions: the role and its policies, bucket policies, KMS keys."""
