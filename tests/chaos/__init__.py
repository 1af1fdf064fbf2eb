"""Faults of the brain on Ray: a cluster of several nodes on this machine, and what is done to it."""
