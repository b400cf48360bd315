"""From YAML text to a JobSpec: layers (`extends`, `--set`, `${NAME}`), the position of each value, and errors at it.

Not here: what the keys mean (`spec`) and the rules between them (`rules`).
"""
