"""Rules about AWS's built-in algorithms: their channels, images, hyperparameters and instances."""
