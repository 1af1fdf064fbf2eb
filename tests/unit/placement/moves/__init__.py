"""Tests of the moves decider."""
