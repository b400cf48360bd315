"""PID 1 of the container: unpack the code, install requirements, run the script, report its failure.

Not here: anything that a training script imports.
"""
