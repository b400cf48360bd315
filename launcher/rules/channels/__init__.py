"""Rules on input channels: names, URIs, prefixes, content types, input modes, file systems.

Not here: rules on the channels of AWS's built-in algorithms (`built_in`), and the kinds of channels (`spec.channels`).
"""
