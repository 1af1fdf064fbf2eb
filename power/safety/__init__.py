"""Safety: what devices may hold at most, whose readings are believed, and what may be granted. It has no policy."""
