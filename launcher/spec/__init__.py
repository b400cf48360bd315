"""The job spec as pydantic models: every key that a user may write, with one module per storage kind in `channels`.

Not here: reading YAML (`parsing`), the request (`request`), and rules across keys (`rules`).
"""
