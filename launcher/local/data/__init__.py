"""Which objects a channel of a local run contains, and the store they are read from.

Not here: how they are delivered to the script (`local.providers`).
"""
