"""Faults of every kind while the operator places pods on a real API server, and an auditor that watches throughout."""
