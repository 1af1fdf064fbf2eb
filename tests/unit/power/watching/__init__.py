"""Tests of the power allocator."""
