"""Peers: the rules of other autoscalers, on the same facts, for comparison in the replay."""
