"""Simulated training jobs and their faults, told in the recorder's own frames; recorded jobs likewise."""
