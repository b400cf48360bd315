"""Rules on AWS's built-in algorithms: their channels, images, hyperparameters and instances.

Not here: the table of their images' accounts (`data`).
"""
