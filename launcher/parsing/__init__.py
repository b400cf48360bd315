"""YAML text -> JobSpec: layers (`extends`, `--set`, `${NAME}`), the position of each value, and errors at these positions.

Not here: what the keys mean (`spec`) and the rules between them (`checks`).
"""
