"""Placement modes: how a pod gets onto a node, by scheduling gate, Binding or ResourceClaim."""
