"""Tests of simulated nodes."""
