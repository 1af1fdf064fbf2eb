"""How a node agent behaves."""

from dataclasses import dataclass

RESTORE_S = 20.0
"""Kubernetes gives a pod 30 s to end."""


@dataclass(frozen=True, slots=True)
class AgentRules:
    """How the agent behaves."""

    period_s: float = 0.5
    """Between two looks at the devices, each followed by a report. What a device draws above its lease is counted at
    looks, so whoever looks seldom ends bursts late (tests/properties/test_power_bursts.py)."""
    mean_s: float = 1.0
    """Draws are means over so long, or one period if that is longer. Energy counters are written some ten times a
    second: over a second a mean errs by a tenth at most, over half a second by a fifth."""
    floor_share: float = 0.5
    """Where devices go without a lease, as a share of their highest limit (not below their lowest)."""
    manages: frozenset[str] | None = None
    """UUIDs of the devices that may be limited; None: all that can be. Others are read and reported only."""
    bursts: bool = True
    """Whether leases' bursts are used. Not out of band: a limit that is at work after 40 s ends no burst in time."""
    restore_s: float = RESTORE_S
    """For giving limits back: so long are devices asked again that do not have them yet."""

    def manages_device(self, uuid: str) -> bool:
        return self.manages is None or uuid in self.manages
