"""Why a job failed: a table of known causes, and tracebacks found in its log.

Not here: how the log is read (`jobs.lines`).
"""
