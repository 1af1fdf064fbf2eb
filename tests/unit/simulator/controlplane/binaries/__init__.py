"""Tests of building the control plane's programs."""
