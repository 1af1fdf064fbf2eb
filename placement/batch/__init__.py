"""Batch planner: all pending pods at once, onto the nodes that together cost least per hour."""
