"""The bundled image classifier: its options, images, model and training loop. `entrypoints/train.py` runs it.

Not here: reading channels, which works without torch.
"""
