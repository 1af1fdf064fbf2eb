"""Simulated day: the controller's own loop under arrivals, demand and a lost node, and its report."""
