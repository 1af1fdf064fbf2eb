"""Sweeps: independent runs one by one, in processes or on Ray, with a cache of results."""
