"""Replay of autoscaling: load traces against scaling policies."""
