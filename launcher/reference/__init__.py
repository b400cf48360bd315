"""What users look up: the JSON schema, the meaning of each problem code, and the generated parts of the documentation.

Not here: the rules and checks themselves, which carry their own explanations.
"""
