"""Tests of the autoscaler on Kubernetes."""
