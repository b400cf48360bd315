"""Checks of file systems (EFS, FSx) and of disk space."""
