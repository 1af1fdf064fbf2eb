"""Tests of the packing engine."""
