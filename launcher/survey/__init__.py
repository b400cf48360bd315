"""What is there: a channel's inventory, its first samples and measurements of it, and what a folder holds for a first spec.

Not here: what follows from that (`advice`), and whether a job can run (`account`).
"""
