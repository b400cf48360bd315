"""Requests from elsewhere -> spec: `launch --import`.

Not here: requests of our own (`request`), and the hints for other tools' keys in a spec (`parsing.foreign_keys`).
"""
