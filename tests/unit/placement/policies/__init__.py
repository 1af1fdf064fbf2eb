"""Tests of placement policies."""
