"""Tests of rival policies."""
