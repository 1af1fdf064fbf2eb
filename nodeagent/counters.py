"""Counters of a node agent since its start."""

from dataclasses import dataclass


@dataclass(slots=True)
class AgentCounts:
    """Counters since the start, for the metrics."""

    refused: dict[str, int]
    """Refused leases by code."""
    failed: dict[str, int]
    """Failed calls to devices by code."""
    looks: int = 0
    leases: int = 0
    floors: int = 0
    """Number of times that a lease ended without renewal."""
