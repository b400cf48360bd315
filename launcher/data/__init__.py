"""Tables sourced from AWS, as JSON, and the scripts that make them.

Not here: code that the launcher runs.
"""
