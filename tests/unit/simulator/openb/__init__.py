"""Tests of the openb trace and fleets like it."""
