"""Tests of commands, each as a user types it."""
