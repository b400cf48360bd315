"""JobSpec -> CreateTrainingJob request, and what is known of requests: botocore's model, image URIs, instance types.

Not here: judging a request (`checks`), and sending one (`jobs.submission`).
"""
