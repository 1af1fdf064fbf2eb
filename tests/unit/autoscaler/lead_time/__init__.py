"""Tests of learned lead times."""
