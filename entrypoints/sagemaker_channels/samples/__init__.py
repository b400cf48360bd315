"""A channel's samples: `open_channel`, mixtures of channels, the object cache, `.lst` labels, digests.

Not here: anything that imports torch (`torch_data`).
"""
