"""Policies: pure functions from believed readings to wanted limits, replaceable and comparable side by side."""
