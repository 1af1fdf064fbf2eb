"""Rigs hold their own rules."""
