"""Tests of placement modes."""
