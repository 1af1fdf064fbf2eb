"""Autoscaler: how many replicas a workload needs, by expected cost under a calibrated forecast of its load."""
