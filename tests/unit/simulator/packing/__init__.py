"""Tests of replays under packing policies."""
