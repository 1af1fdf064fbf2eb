"""Replay of agents' memory in real cgroups of a guest kernel, under isolation and under rival policies."""
