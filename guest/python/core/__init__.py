"""One session: the channel to the host, the namespace, cells and calls."""
