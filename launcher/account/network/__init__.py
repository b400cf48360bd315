"""Checks of the VPC: subnets, security groups, network ACLs, the route to S3."""
