"""Packing replay: recorded or generated arrivals under several packing policies."""
