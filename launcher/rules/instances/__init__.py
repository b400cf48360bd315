"""Rules on instances: types and counts, volumes, warm pools, time limits, serverless jobs.

Not here: what each instance type has (`request.instance_types`), and quotas, which only AWS knows (`account.quota`).
"""
