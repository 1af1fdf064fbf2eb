"""Tests of device back ends, on fake drivers."""
