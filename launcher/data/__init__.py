"""Data that travels with the launcher, and the scripts that make it: what AWS publishes but botocore's model does not hold."""
