"""What speaks to AWS, or to whatever its endpoint variables name: the account's clients, and its refusals in one line."""
