"""What a user's own program calls on the driver; `mpca` has the names. Nothing is imported here: refusals need `job` alone."""
