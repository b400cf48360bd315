"""JobSpec -> CreateTrainingJob request, and facts about requests: botocore's model, image URIs, instance types.

Not here: judging a request (`rules`), and sending one (`jobs.submission`).
"""
