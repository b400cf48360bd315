"""Rules about input channels: names, URIs, prefixes, input modes, file systems."""
