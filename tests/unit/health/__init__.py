"""Tests of what analyses collective operations."""
