"""Bytes ahead of the reader: prefetching, listings shared by the processes of a host, waiting for silent sources.

Not here: where bytes come from (`readers`), and what they mean (`records`).
"""
