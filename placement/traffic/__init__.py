"""Traffic of gangs over the network's tree: the order of ranks, and what crosses the links above nodes."""
