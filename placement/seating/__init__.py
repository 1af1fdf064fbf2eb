"""Seats of instances on nodes: what nodes hold together, and which instances may be where."""
