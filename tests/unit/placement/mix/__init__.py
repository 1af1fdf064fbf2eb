"""Tests of the mix decider."""
