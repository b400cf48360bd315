"""`.lst` lists of images and labels: making, checking, comparing and editing them.

Reading one line, and writing one, is in `sagemaker_channels.samples.lst`, since the container reads lists as well.
"""
