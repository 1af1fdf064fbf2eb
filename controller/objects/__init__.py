"""Kubernetes objects with their origin: a file, or the cluster."""
