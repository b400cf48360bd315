"""Tables of facts about AWS, as JSON, and the scripts that write them.

Not here: code that the launcher runs.
"""
