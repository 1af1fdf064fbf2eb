"""Tests of brains: deadlines, restarts, frames."""
