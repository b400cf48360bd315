"""Objects kept on a local disk for later epochs and later jobs."""
