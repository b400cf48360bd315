"""The order of an epoch: which objects and samples a process reads, and the position it has reached.

Not here: reading them (`samples`).
"""
