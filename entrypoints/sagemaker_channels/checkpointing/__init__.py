"""Checkpoints that exist whole or not at all, of models on any number of ranks, in a folder or a bucket.

Not here: single files and objects (`sagemaker_channels.checkpoint`), and when to save (the training script).
"""
