"""Lead time: the distribution of order → ready, learned from observed starts by GPU type."""
