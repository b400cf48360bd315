"""Which way a channel's data should arrive: what is there, what each way would take, and a recommendation with reasons.

Pure functions over facts that others collected. Not here: asking AWS, probing, and editing specs (`launcher.commands`).
"""
