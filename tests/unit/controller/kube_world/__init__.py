"""Tests of Kubernetes as a world."""
