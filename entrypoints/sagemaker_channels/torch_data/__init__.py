"""Channels as PyTorch datasets and loaders.

Not here: models and training loops (`image_training`). Only these two rooms import torch.
"""
