"""What the store and the account say about a channel's data: its inventory, the jobs that read it, a probe of its speed.

Not here: what follows from that (`advice`), and whether a job can run (`account`).
"""
