"""Tests of Events, statuses, metrics and logs."""
