"""Benchmarks: each prints what docs/benchmarks.md states, on data that its arguments name."""
