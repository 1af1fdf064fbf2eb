"""Operator process: all parts assembled, started and stopped in order."""
