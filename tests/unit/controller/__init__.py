"""Tests of the loop, its guard and the rooms around it."""
