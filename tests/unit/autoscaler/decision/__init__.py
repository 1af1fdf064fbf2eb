"""Tests of the decision by expected cost."""
