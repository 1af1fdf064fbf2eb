"""Tests of the packing decider."""
