"""Tests of power leases and what decides them."""
