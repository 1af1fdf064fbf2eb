"""Allocator: one control step from readings to grants, by water-filling down the tree of budgets."""
