"""Rules on the job: its name, code, arguments, image, network, outputs and profiler.

Not here: rules on its machines and time limits (`instances`).
"""
