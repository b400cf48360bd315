"""What `entrypoints/measure.py` and `entrypoints/reshard.py` need beside the library: ways to read, measured, and resharding.

It is sent only with jobs of these scripts (`launcher/code/archive.py`).
"""
