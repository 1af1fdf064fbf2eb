"""Simulated datacenter: the product's loop and decisions on traces and generated fleets."""
