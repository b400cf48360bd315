"""Where a channel's bytes come from: files, FIFOs, S3; what is listed there, fetched ahead, and kept on a disk.

Not here: what the bytes mean (`formats`), and in which order they are read (`epoch`).
"""
