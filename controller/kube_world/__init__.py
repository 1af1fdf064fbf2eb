"""Kubernetes as a World of the control loop: observation of the cluster, and application of actions."""
