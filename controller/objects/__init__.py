"""Kubernetes objects and where each was read: from files or from watches."""
