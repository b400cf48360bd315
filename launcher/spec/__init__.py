"""The job spec as pydantic models: what a user may write, key by key, and one module per storage kind in `channels`.

Not here: reading YAML (`parsing`), the request (`request`), and rules that relate keys to each other (`checks`).
"""
