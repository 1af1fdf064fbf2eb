"""Tests of deciders and their order."""
