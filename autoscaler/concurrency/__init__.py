"""Concurrency tuner: the number of requests that one replica serves at once, learned per workload context."""
