"""Tables of facts about AWS, as JSON; scripts in tests/data write them.

Not here: code.
"""
