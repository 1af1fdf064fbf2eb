"""Tests of the tree of budgets."""
