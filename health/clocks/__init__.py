"""Clocks of the ranks, aligned by causality."""
