"""Reference for users: the JSON schema, the meaning of each problem code, and the generated parts of the documentation.

Not here: the rules and preflight checks, whose own explanations are collected here.
"""
