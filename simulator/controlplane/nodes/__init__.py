"""Simulated nodes: heartbeats, kubelets and ResourceSlices towards a real API server."""
