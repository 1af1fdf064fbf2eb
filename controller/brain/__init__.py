"""Brains: where a snapshot becomes a plan, in this process or in a child process on Ray."""
