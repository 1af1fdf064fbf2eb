"""Rigs on a control plane of their own."""
