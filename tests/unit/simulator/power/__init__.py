"""Tests of the simulated row."""
