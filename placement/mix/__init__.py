"""Mix of GPU types: the cheapest number of instances of each type for every model service."""
