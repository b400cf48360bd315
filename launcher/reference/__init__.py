"""Reference for users: the JSON schema, and the meaning of each problem code.

Not here: the rules and account checks, whose own explanations are collected here, and the script that writes the
documentation's tables (tests/data/make_docs.py).
"""
