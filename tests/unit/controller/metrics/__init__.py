"""Tests of the metrics' table, registry and endpoint."""
