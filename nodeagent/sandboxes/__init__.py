"""Sandboxes on this node: the arbiter's actions applied to cgroups, and the kernel's events brought to it."""
