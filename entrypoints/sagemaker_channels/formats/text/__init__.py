"""Formats of text with one record a line: lines, JSON lines, CSV rows and augmented manifests."""
