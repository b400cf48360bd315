"""A job's CloudWatch log streams: their lines in order, the hosts that wrote them, and the metrics in them.

Not here: following a job to its end (`jobs.follow`).
"""
