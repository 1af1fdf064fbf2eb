"""Shadow prices: the worth of free capacity to the pods that are expected."""
