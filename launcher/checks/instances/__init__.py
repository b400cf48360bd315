"""Rules about instances: types and counts, volumes, warm pools, time limits, serverless jobs."""
