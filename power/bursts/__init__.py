"""Bursts: draw above a lease for a moment, within what breakers and the headroom allow."""
