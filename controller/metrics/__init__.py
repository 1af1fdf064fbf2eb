"""Metrics: the table that defines them, the registry that holds their values, the endpoint that serves them."""
