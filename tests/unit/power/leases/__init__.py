"""Tests of power leases."""
