"""What a reader reads of an epoch and in which order, as nested stages: objects, records, blocks, mixtures.

Each stage has a position, and resuming is making the same stages again at their positions (deals.py, states.py).
"""
