"""Packing replay: recorded or generated arrivals under packing policies, side by side."""
