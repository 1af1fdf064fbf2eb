"""Tests of sweeps of many runs."""
