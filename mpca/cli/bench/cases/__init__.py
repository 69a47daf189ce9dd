"""One module a case of `mpca bench`, with its click command as `command`."""
