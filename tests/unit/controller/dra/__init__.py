"""Tests of dynamic resource allocation."""
