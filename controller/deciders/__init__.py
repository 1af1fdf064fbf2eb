"""Deciders and their order: pure functions of a snapshot, the same for every planner process."""
