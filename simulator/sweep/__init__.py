"""Sweeps: independent runs in this process, in several processes or on Ray, with a cache of results."""
