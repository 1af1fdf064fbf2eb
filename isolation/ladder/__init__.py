"""Action ladder: what makes way, in which order, when memory is short."""
