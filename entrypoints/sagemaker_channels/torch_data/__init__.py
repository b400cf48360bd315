"""Channels as PyTorch datasets and loaders.

Not here: models and training loops (`entrypoints/train.py`).
"""
