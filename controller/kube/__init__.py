"""Kubernetes API: connection, reads, watches, writes, leader election. The only folder that imports its client."""
