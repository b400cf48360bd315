"""Checks of capacity: service quotas and training plans."""
