"""Shadow prices: what free capacity is worth to the pods that are expected."""
