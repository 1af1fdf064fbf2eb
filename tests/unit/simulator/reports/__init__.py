"""Tests of HTML reports."""
