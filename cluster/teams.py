"""Teams: groups of namespaces with a guaranteed share of the devices, and what they may borrow beyond it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Amounts:
    """Devices of a team: by type, or all together by what they cost."""

    gpu_milli: Mapping[str, int] = field(default_factory=dict)
    """Thousandths of devices by GPU type."""
    usd_per_hour: float | None = None
    """Dollars per hour instead."""


@dataclass(frozen=True, slots=True)
class Team:
    """Team, as placement needs it. Pods of no team are one team more, without a share and with weight 1."""

    name: str
    namespaces: frozenset[str]
    share: Amounts = Amounts()
    """What it gets whenever it asks; what it does not use is lent."""
    borrowing: Amounts = Amounts()
    """What it may hold beyond its share, at most; a type that is not named: any number."""
    weight: float = 1.0
    """Part of what is lent that it gets, beside the weights of others that borrow."""
    min_run_s: float = 0.0
    """Time for which a pod that it borrows devices for runs at least."""
    max_wait_s: float = 86_400.0
    """Time after which a pod that waits takes from others beyond their share, from its own team, and of shares."""
    usage: float = 0.0
    """Devices that it borrowed lately, as an average that decays."""
