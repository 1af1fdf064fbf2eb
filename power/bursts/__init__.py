"""Bursts: short draws above a lease, within what breakers tolerate and the headroom allows."""
