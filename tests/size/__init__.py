"""How big the house is, and how long one pod's trip through it: counts with ceilings that only fall."""
