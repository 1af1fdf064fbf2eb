"""Benchmarks of the operator as the chart installs it: its account, its settings, its brain, on a real API server."""
