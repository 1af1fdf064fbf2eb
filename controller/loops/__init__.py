"""Loops beside the planning cycle: deciders that need watches, endpoints or a fast turn of their own on Kubernetes."""
