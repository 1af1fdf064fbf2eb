"""PowerDomain: a site, row, rack or PDU with its power budget, breaker, feeds and nodes."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import AGE, Kind, PrinterColumn, condition, reason
from controller.api.rule import Flaw, Rule

Type = Literal["site", "row", "rack", "pdu"]
Mode = Literal["enforce", "observe"]
Share = Annotated[float, Field(gt=0, le=1)]


class Feed(fields.Strict):
    """PowerDomain that supplies this one."""

    name: fields.ObjectName = Field(description="Name of the PowerDomain that feeds this one.")
    share: Share = Field(
        default=1.0,
        description="Fraction of this domain's draw that the feed must be able to carry in the worst case, 0 to 1. Use "
        "1 for a single feed, and for each of two feeds if either must carry all when the other fails.",
    )


class BreakerPoint(fields.Strict):
    """Point of the trip curve: an overload, and the time until the breaker trips."""

    over: float = Field(gt=1, le=100, description="Draw divided by the budget: 1.1 is 10 % over.")
    seconds: float = Field(gt=0, le=86_400, description="Seconds until the breaker trips at that draw.")


class Breaker(fields.Strict):
    """Trip curve and cooling of the breaker."""

    curve: fields.ListOf[BreakerPoint] = Field(
        min_length=1,
        max_length=16,
        description="Points of the trip curve, over rising and seconds falling; log-log interpolation between them.",
    )
    cooling_seconds: float = Field(
        default=300.0, gt=0, le=86_400, description="Time constant of the breaker's cooling after an overload, seconds."
    )


class DomainNodes(fields.Strict):
    """Nodes that draw directly from this domain: those whose label has one of these values."""

    key: fields.LabelKey = Field(description="Key of the node label.")
    values: Annotated[fields.ListOf[fields.LabelValue], fields.as_set()] = Field(
        min_length=1, max_length=256, description="Values of that label; one is enough."
    )
    other_watts: fields.NumberFromZero = Field(
        default=0.0,
        description="Worst-case draw of each such node besides its managed devices (CPUs, memory, fans), watts.",
    )
    overhead_share: fields.Fraction = Field(
        default=0.0,
        description="Additional draw of each such node for every watt of its devices (fans, losses of power supplies), "
        "0 to 1: 0.25 adds a quarter. What is stated here must not be part of otherWatts.",
    )


class ServiceClass(fields.Strict):
    """Class of service, which decides whose power is reduced first."""

    name: fields.DnsLabel = Field(
        description="Name of the class; nodes select it by the label tonnage.dev/power-class."
    )
    rank: int = Field(
        ge=0,
        le=1000,
        description="0 is the most important; classes with larger numbers are reduced to their floors first.",
    )
    min_priority: fields.Priority | None = Field(
        default=None,
        description="Nodes belong to this class if the highest priority of their GPU pods is at least this.",
    )
    bursts: bool = Field(
        default=True,
        description="Whether its devices may draw more than their power limits for seconds, as far as the breaker "
        "tolerates. Set false where work starts together, such as training and batch jobs.",
    )
    floor: Share = Field(
        default=0.5, description="Lowest useful power limit of its devices, as a fraction of their highest."
    )


class PowerDomainSpec(fields.Strict):
    type: Type = Field(description="Type of the domain, informational only.")
    feeds: Annotated[fields.ListOf[Feed], fields.keyed_by("name")] = Field(
        default=(), max_length=4, description="PowerDomains that supply this one; none for the top of the tree."
    )
    budget_watts: fields.PositiveNumber | None = Field(
        default=None, description="Continuous power budget, watts. Without it the domain only groups others."
    )
    other_watts: fields.NumberFromZero = Field(
        default=0.0,
        description="Worst-case draw besides its nodes and the domains it feeds (switches, cooling), watts.",
    )
    breaker: Breaker | None = Field(
        default=None, description="Trip curve of the breaker. Without it no draw over the budget is tolerated."
    )
    nodes: DomainNodes | None = Field(default=None, description="Nodes that draw directly from this domain.")
    classes: Annotated[fields.ListOf[ServiceClass], fields.keyed_by("name")] = Field(
        default=(),
        max_length=16,
        description="Classes of service in this domain and all it feeds; a domain nearer to the node overrides them.",
    )
    mode: Mode = Field(
        default="enforce",
        description="observe: devices are only read and reported; their own power limits are restored and not changed.",
    )


class Culprit(fields.StatusPart):
    """Device that does not follow its power limit or does not report, or a meter that contradicts its devices."""

    device: str = Field(max_length=128, description="UUID of the device; `meter` for the meter of the whole node.")
    node: str = Field(max_length=253, description="Name of its node.")
    reason: str = Field(
        max_length=64,
        description="One word: Stale, OverCap, NotEnforced, Stuck, Impossible, WrongUnit; for meters: MeterShowsMore, "
        "MeterShowsLess, MeterStale, MeterImpossible, MeterWrongUnit.",
    )


class CappedDevice(fields.StatusPart):
    """Device whose power cap is below what it would draw."""

    device: str = Field(max_length=128, description="UUID of the device.")
    node: str = Field(max_length=253, description="Name of its node.")
    service_class: str = Field(max_length=128, description="Class of service of the device.")
    cap_watts: float = Field(description="Power cap, watts.")
    need_watts: float = Field(description="Expected draw without a cap, including a margin, watts.")
    limited_by: str = Field(max_length=253, description="Most heavily loaded of the domains that supply it.")
    since_time: fields.Instant = Field(description="When this cap was set.")
    slower_share: fields.Fraction = Field(
        description="Slowdown of its work, as a fraction, by the power curve of its GPU type."
    )


class PowerDomainStatus(ObservedStatus):
    """State of the domain. Conditions: Accepted, Ready (its agents report), Degraded."""

    draw_watts: float | None = Field(
        default=None,
        description="Present draw, watts: readings of its devices, their worst case where readings are stale, and "
        "otherWatts.",
    )
    worst_watts: float | None = Field(
        default=None, description="Worst-case draw under all power leases that may still be in force, watts."
    )
    headroom_watts: float | None = Field(
        default=None,
        description="Power available to new work, watts: budget minus draw and its measured spike, the minimum over "
        "this domain and those that supply it. Negative: power is short, or the floors of its devices do not fit.",
    )
    budget_watts: float | None = Field(default=None, description="Enforced budget, watts.")
    devices: int = Field(default=0, ge=0, le=10_000_000, description="Number of devices that draw through this domain.")
    stale_devices: int = Field(default=0, ge=0, le=10_000_000, description="Number of them without a recent report.")
    capped_share: fields.Fraction | None = Field(
        default=None, description="Fraction of its devices that are capped below what they would draw."
    )
    culprits: fields.ListOf[Culprit] = Field(
        default=(),
        max_length=16,
        description="Devices that ignore their limits, report implausible values or do not report, then meters; at "
        "most 16.",
    )
    held_back_devices: int = Field(
        default=0, ge=0, le=10_000_000, description="Number of devices that are capped below what they would draw."
    )
    held_back: fields.ListOf[CappedDevice] = Field(
        default=(),
        max_length=128,
        description="The capped devices on nodes directly in this domain, not in one that it feeds; at most 128.",
    )


class PowerDomain(fields.OwnKind):
    """Part of the power distribution tree. Not namespaced."""

    kind: Literal["PowerDomain"]
    spec: PowerDomainSpec = Field(description="Budget, breaker, feeds and nodes of the domain.")
    status: PowerDomainStatus = Field(default=PowerDomainStatus(), description="Written by Tonnage.")


def _self_flaws(domain: PowerDomain) -> Iterator[Flaw]:
    if any(feed.name == domain.metadata.name for feed in domain.spec.feeds):
        yield Flaw(("spec", "feeds"), "a domain cannot feed itself", "name the domain that supplies it")


RULES = (
    Rule(
        ("spec", "breaker", "curve"),
        "self.map(p, p.over).isSorted() && self.map(p, -p.seconds).isSorted() && "
        "self.all(p, self.exists_one(q, q.over == p.over) && self.exists_one(q, q.seconds == p.seconds))",
        "over must rise and seconds must fall from point to point",
        lambda curve: all(high.over > low.over and high.seconds < low.seconds for low, high in pairwise(curve)),
    ),
    Rule(
        (),
        "!has(self.spec.feeds) || self.spec.feeds.all(f, f.name != self.metadata.name)",
        "a domain cannot feed itself; name the domain that supplies it",
        flaws=_self_flaws,
    ),
    Rule(
        ("spec",),
        "!has(self.breaker) || has(self.budgetWatts)",
        "a breaker without budgetWatts has no effect; set the budget that the curve refers to",
        lambda spec: spec.breaker is None or spec.budget_watts is not None,
    ),
    Rule(
        ("spec", "classes"),
        "self.all(c, self.exists_one(d, d.rank == c.rank))",
        "two classes have the same rank; give each its own; the higher rank is reduced first",
        lambda classes: len({each.rank for each in classes}) == len(classes),
    ),
)

KIND = Kind(
    model=PowerDomain,
    plural="powerdomains",
    short_names=("pdom",),
    is_namespaced=False,
    columns=(
        PrinterColumn("Type", ".spec.type", "string", "Type of the domain."),
        PrinterColumn("Budget", ".spec.budgetWatts", "number", "Continuous power budget, watts."),
        PrinterColumn("Draw", ".status.drawWatts", "number", "Present draw, watts."),
        PrinterColumn("Headroom", ".status.headroomWatts", "number", "Power available to new work, watts."),
        PrinterColumn("Devices", ".status.devices", "integer", "Devices that draw through this domain."),
        PrinterColumn("Stale", ".status.staleDevices", "integer", "Devices without a recent report.", is_wide=True),
        PrinterColumn(
            "Capped", ".status.cappedShare", "number", "Fraction of its devices that are capped.", is_wide=True
        ),
        condition("Ready", "Whether its agents report and its budget is kept."),
        reason("Ready"),
        AGE,
    ),
    rules=RULES,
    watched_by="power",
    watched_as="power_domains",
)
