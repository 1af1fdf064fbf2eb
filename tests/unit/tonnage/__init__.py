"""Tests of what training jobs import."""
