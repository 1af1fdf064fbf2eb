"""Rigs: what only tests and benchmarks measure with, such as made-up jobs and rival rules; no user reaches them."""
