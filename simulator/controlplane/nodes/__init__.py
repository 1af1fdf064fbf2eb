"""Simulated nodes: heartbeats, kubelets and ResourceSlices against a real API server."""
