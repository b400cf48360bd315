"""From a request made elsewhere to a spec: `launch import`.

Not here: building requests (`request`), and hints for other tools' keys in a spec (`parsing.foreign_keys`).
"""
