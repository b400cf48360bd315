"""Jobs in the account: creating, finding, following and comparing them.

Not here: local runs (`local`), and prices (`cost`).
"""
