"""The cases of `mpca bench`: one module each, with its click command as `command`."""
