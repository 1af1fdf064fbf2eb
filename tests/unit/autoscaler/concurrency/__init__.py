"""Tests of the concurrency tuner."""
