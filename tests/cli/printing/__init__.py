"""Tests of what commands print."""
