"""Builders for tests: small fleets, manifests, watch events, device claims, power tables, random fleets."""
