"""Isolation in the operator: which pods are sandboxes, orders for their nodes, and what became of them."""
