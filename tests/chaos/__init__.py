"""Faults: random compositions of them for the operator, and of the brain on Ray what befalls its nodes (`nodes.py`)."""
