"""Tests of the fast loop of power."""
