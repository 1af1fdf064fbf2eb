"""Deciders and their order: pure functions of a snapshot, for every brain."""
