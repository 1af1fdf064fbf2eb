"""Benchmarks: each prints the figures of docs/benchmarks.md, on data that its arguments name."""
