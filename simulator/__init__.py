"""A pretend datacenter: the same loop and the same decisions, on traces and generated fleets."""
