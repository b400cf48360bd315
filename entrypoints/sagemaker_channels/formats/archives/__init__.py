"""Formats whose objects are archives, tar and zip: the members of one base name are one sample."""
