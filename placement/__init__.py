"""Placement deciders: GPU mix of a service, node and devices of each pod, and moves of running pods that pay."""
