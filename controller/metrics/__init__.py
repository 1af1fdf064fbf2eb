"""Metrics: the table of all of them, the registry that counts, the endpoint that serves them."""
