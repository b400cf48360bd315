"""Jobs that exist in AWS: following them, their lines and metrics, how they ended and why they failed."""
