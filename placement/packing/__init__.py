"""Packing decider: pending pods and gangs onto nodes by priority, with preemption."""
