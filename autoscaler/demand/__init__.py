"""Demand where users have it: queries for the metrics of inference servers and gateways, and request lengths."""
