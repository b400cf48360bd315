"""Checkpoints that exist whole or not at all, of models on any number of ranks, in a folder or a bucket.

Not here: when to save (the training script).
"""
