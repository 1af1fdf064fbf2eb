"""Tests of bursts above a lease."""
