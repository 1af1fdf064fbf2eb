"""Autoscaler on Kubernetes: what is measured of each ScalingPolicy's target, and the facts and statuses made of it."""
