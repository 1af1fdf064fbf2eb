"""Replay of a mixed fleet: one service on several GPU types with finite stock, scaled by the operator and by peers."""
