"""Timing and limits of a node agent."""

from dataclasses import dataclass

RESTORE_S = 20.0
"""Time for restoring limits: Kubernetes gives a pod 30 s to end."""


@dataclass(frozen=True, slots=True)
class AgentRules:
    """Behaviour of the agent."""

    period_s: float = 0.5
    """Interval between two readings of the devices, each followed by a report. The draw above a lease is counted at
    readings, so rare readings end bursts late (tests/properties/test_power_bursts.py)."""
    mean_s: float = 1.0
    """Time over which draws are averaged, or one period if that is longer. Energy counters are updated some ten times a
    second: a mean over a second errs by a tenth at most, over half a second by a fifth."""
    floor_share: float = 0.5
    """Floor of devices without a lease, as a fraction of their highest limit (not below their lowest)."""
    manages: frozenset[str] | None = None
    """UUIDs of the devices that may be limited; None: all that can be. Others are only read and reported."""
    bursts: bool = True
    """Whether bursts of leases are used. Not out of band: a limit that takes 40 s to apply cannot end a burst soon
    enough."""
    restore_s: float = RESTORE_S
    """Time for restoring limits; failed devices are tried again until then."""

    def manages_device(self, uuid: str) -> bool:
        return self.manages is None or uuid in self.manages
