"""Plan -> a run on this machine, with each channel in its own input mode: hosts, processes, outputs, report.

Not here: running a job at AWS (`jobs`). Inside: `data` (what a channel contains), `providers` (how it is delivered), `runners`
(processes or containers), `s3_server`.
"""
