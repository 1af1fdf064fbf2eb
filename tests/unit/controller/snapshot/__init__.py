"""Tests of snapshots built from objects."""
