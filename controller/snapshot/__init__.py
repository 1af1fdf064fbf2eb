"""Snapshots built from Kubernetes objects, by the same code for files and for a live cluster."""
