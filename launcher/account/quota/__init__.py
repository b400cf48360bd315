"""Checks of quotas and training plans, and the instances that a job asks for."""
