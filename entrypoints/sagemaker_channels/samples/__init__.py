"""What belongs to samples: labels from lists and folders, digests.

Not here: anything that imports torch (`torch_data`).
"""
