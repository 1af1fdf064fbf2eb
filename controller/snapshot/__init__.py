"""Snapshots built from Kubernetes objects: the same code for files and for a live cluster."""
