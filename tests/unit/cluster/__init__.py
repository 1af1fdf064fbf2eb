"""Tests of the snapshot and its records."""
