"""Tests of shadow prices."""
