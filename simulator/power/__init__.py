"""Simulated row of inference servers under one breaker: what it draws, how fast it answers, and which servers are
slowed.
"""
