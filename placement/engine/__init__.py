"""Packing engine: the node and devices where one pod costs least under a policy."""
