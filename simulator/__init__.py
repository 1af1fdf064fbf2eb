"""A pretend datacenter: traces, arrivals and replays under the same decisions that a real cluster gets."""
