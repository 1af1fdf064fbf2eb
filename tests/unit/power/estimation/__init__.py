"""Tests of estimates of devices and limits."""
