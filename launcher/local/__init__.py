"""Plan -> a run on this machine, with each channel in its own input mode: hosts, processes, outputs, report.

Not here: running a job at AWS (`jobs`). Inside: `channels` (what each contains, how it is delivered), the runners `processes` and
`containers`, `s3_server`.
"""
