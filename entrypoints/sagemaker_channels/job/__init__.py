"""What SageMaker's files and variables say about this job: channels, hosts, hyperparameters, processes.

Not here: reading a channel's data (`sources`), and starting the user's script (`start`).
"""
