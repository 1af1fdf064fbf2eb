"""What happened to a node agent since its start."""

from dataclasses import dataclass


@dataclass(slots=True)
class AgentCounts:
    """What happened since the start, for the metrics."""

    refused: dict[str, int]
    """Leases that were not accepted, by why."""
    failed: dict[str, int]
    """Calls to devices that failed, by why."""
    looks: int = 0
    leases: int = 0
    floors: int = 0
    """How often a lease ended without another one."""
