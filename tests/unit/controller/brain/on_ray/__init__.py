"""Tests of the brain's side of Ray, on a fake Ray."""
