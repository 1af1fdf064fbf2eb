"""Tests of a control plane of one's own, without starting it."""
