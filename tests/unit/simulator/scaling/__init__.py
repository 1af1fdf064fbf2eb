"""Tests of the replay of autoscaling."""
