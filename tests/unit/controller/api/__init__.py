"""Tests of our kinds: their rules, quantities and conditions."""
