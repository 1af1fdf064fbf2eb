"""Tests of batch placement."""
