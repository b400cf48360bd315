"""Rules about the job: its name, code, arguments, image, network, outputs and profiler."""
