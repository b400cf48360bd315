"""Why a job failed: tables of known causes, and tracebacks found in its log.

Not here: how the log is read (`jobs.logs`).
"""
