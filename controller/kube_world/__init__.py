"""Kubernetes as a world: what the loop observes of a cluster, and how it applies actions to it."""
