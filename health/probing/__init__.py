"""Probing: which pairs of nodes are measured for a suspected fault of the network, and what their answers name."""
