"""PowerDomain: a site, row, rack or PDU with its budget, its breaker, what feeds it and which nodes draw from it."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from controller.api.conditions import ObservedStatus
from controller.api.fields import (
    DnsLabel,
    Instant,
    LabelKey,
    LabelValue,
    ListOf,
    NumberFromZero,
    ObjectName,
    PositiveNumber,
    Strict,
    Told,
    as_set,
    keyed_by,
)
from controller.api.flaw import Flaw, repeat_flaws
from controller.api.kind import Kind
from controller.api.metadata import ApiVersion, OwnMeta
from controller.api.printer_columns import AGE, Column, condition, reason
from controller.api.rule import Rule

Type = Literal["site", "row", "rack", "pdu"]
Mode = Literal["enforce", "observe"]
Share = Annotated[float, Field(gt=0, le=1)]


class Feed(Strict):
    """What this domain draws through."""

    name: ObjectName = Field(description="Name of the PowerDomain that feeds this one.")
    share: Share = Field(
        default=1.0,
        description="How much of this domain's draw that feed must be able to carry at worst, 0 to 1. 1 for a single "
        "feed, and for each of two feeds when either must carry all after the other has failed.",
    )


class BreakerPoint(Strict):
    """So much over the budget opens the breaker after so long."""

    over: float = Field(gt=1, le=100, description="Draw divided by the budget: 1.1 is 10 % over.")
    seconds: float = Field(gt=0, le=86_400, description="Seconds until it opens at that draw.")


class Breaker(Strict):
    """How long the breaker stands how much."""

    curve: ListOf[BreakerPoint] = Field(
        min_length=1,
        max_length=16,
        description="Points of the trip curve, over rising and seconds falling. Between them time falls log-log.",
    )
    cooling_seconds: float = Field(
        default=300.0, gt=0, le=86_400, description="Time constant with which the heat of an overload leaves it."
    )


class DomainNodes(Strict):
    """Nodes that draw from this domain directly: those whose label has one of these values."""

    key: LabelKey = Field(description="Key of the node label.")
    values: Annotated[ListOf[LabelValue], as_set()] = Field(
        min_length=1, max_length=256, description="Values of that label, any of them."
    )
    other_watts: NumberFromZero = Field(
        default=0.0,
        description="Worst case of what each such node draws besides its managed devices: CPUs, memory, fans. Watts.",
    )


class ServiceClass(Strict):
    """Who gives watts first."""

    name: DnsLabel = Field(description="Name of the class; nodes name it in the label tonnage.dev/power-class.")
    rank: int = Field(
        ge=0,
        le=1000,
        description="0 is served first; a class is taken to its floor before one of lower rank is touched.",
    )
    min_priority: int | None = Field(
        default=None,
        ge=-(2**31),
        le=2**31 - 1,
        description="A node whose most important GPU pod has at least this priority is of this class.",
    )
    weight: PositiveNumber = Field(default=1.0, description="What a second lost by this class weighs against others.")
    floor: Share = Field(default=0.5, description="Useful floor of its devices, as a share of their highest limit.")


class PowerDomainSpec(Strict):
    type: Type = Field(description="What it is, for people.")
    feeds: Annotated[ListOf[Feed], keyed_by("name")] = Field(
        default=(), max_length=4, description="The PowerDomains that it draws through; none at the top."
    )
    budget_watts: PositiveNumber | None = Field(
        default=None, description="What may be drawn through it for ever, watts. Left out: it only groups others."
    )
    other_watts: NumberFromZero = Field(
        default=0.0,
        description="Worst case of what is drawn in it besides its nodes and inner domains: switches, cooling. Watts.",
    )
    breaker: Breaker | None = Field(
        default=None, description="Its trip curve. Left out: nothing over the budget is tolerated."
    )
    nodes: DomainNodes | None = Field(default=None, description="Which nodes draw from it directly.")
    classes: Annotated[ListOf[ServiceClass], keyed_by("name")] = Field(
        default=(),
        max_length=16,
        description="Classes of service in it and all that it feeds, unless a domain nearer to the node has its own.",
    )
    mode: Mode = Field(
        default="enforce",
        description="observe: devices are read and reported, and their limits are given back and left alone.",
    )


class Culprit(Told):
    """A device that is not as it was told to be, or of which nothing is known; or a meter that contradicts devices."""

    device: str = Field(max_length=128, description="UUID; `meter` for the meter of the whole node.")
    node: str = Field(max_length=253, description="Where it is.")
    reason: str = Field(
        max_length=64,
        description="In one word: Stale, OverCap, NotEnforced, Stuck, Impossible, WrongUnit; of meters MeterShowsMore, "
        "MeterShowsLess, MeterStale, MeterImpossible, MeterWrongUnit.",
    )


class HeldBack(Told):
    """A device that gets fewer watts than it would draw."""

    device: str = Field(max_length=128, description="UUID.")
    node: str = Field(max_length=253, description="Where it is.")
    service_class: str = Field(max_length=128, description="Its class of service.")
    cap_watts: float = Field(description="What it may draw.")
    need_watts: float = Field(description="What it would draw, with a margin.")
    limited_by: str = Field(max_length=253, description="The domain above it that is fullest.")
    since_time: Instant = Field(description="When it was given this cap.")
    slower_share: float = Field(ge=0, le=1, description="How much slower its work is, by the curve of its type.")


class PowerDomainStatus(ObservedStatus):
    """How the domain fares: Accepted, Ready (its agents are heard), Degraded."""

    draw_watts: float | None = Field(
        default=None,
        description="What is drawn through it now: its devices' readings, their worst case where they are stale, "
        "and otherWatts.",
    )
    worst_watts: float | None = Field(
        default=None, description="What could be drawn by everything that was granted and may still be held."
    )
    headroom_watts: float | None = Field(
        default=None,
        description="What more work may begin to draw in it: the budget less the draw and its measured spike; of all "
        "domains that it draws through the least. Below 0: it is short, or the floors of its devices do not fit.",
    )
    budget_watts: float | None = Field(default=None, description="The budget that is kept.")
    devices: int = Field(default=0, ge=0, le=10_000_000, description="Devices that draw through it.")
    stale_devices: int = Field(default=0, ge=0, le=10_000_000, description="Those not heard of lately.")
    capped_share: float | None = Field(
        default=None, ge=0, le=1, description="Share of its devices that are held below what they would draw."
    )
    culprits: ListOf[Culprit] = Field(
        default=(),
        max_length=16,
        description="Devices that do not obey, tell nonsense or are silent, then meters; the first ones.",
    )
    held_back_devices: int = Field(
        default=0, ge=0, le=10_000_000, description="Devices that are held below what they would draw."
    )
    held_back: ListOf[HeldBack] = Field(
        default=(),
        max_length=128,
        description="Those of them that are on nodes of this very domain, not of one that it feeds; the first ones.",
    )


class PowerDomain(Strict):
    """A part of the tree of power. Not namespaced."""

    api_version: ApiVersion
    kind: Literal["PowerDomain"]
    metadata: OwnMeta
    spec: PowerDomainSpec = Field(description="Its budget, its breaker, what feeds it and who draws from it.")
    status: PowerDomainStatus = Field(default=PowerDomainStatus(), description="Written by Tonnage.")


def _curve_flaws(domain: PowerDomain) -> Iterator[Flaw]:
    points = domain.spec.breaker.curve if domain.spec.breaker else ()
    if any(high.over <= low.over or high.seconds >= low.seconds for low, high in pairwise(points)):
        yield Flaw(("spec", "breaker", "curve"), "over must rise and seconds must fall from point to point")


def _self_flaws(domain: PowerDomain) -> Iterator[Flaw]:
    if any(feed.name == domain.metadata.name for feed in domain.spec.feeds):
        yield Flaw(("spec", "feeds"), "a domain cannot feed itself", "name the one above it")


def _breaker_flaws(domain: PowerDomain) -> Iterator[Flaw]:
    if domain.spec.breaker is not None and domain.spec.budget_watts is None:
        yield Flaw(("spec",), "a breaker without budgetWatts says nothing", "give the budget that the curve is of")


def _rank_flaws(domain: PowerDomain) -> Iterator[Flaw]:
    ranks = [each.rank for each in domain.spec.classes]
    if len(set(ranks)) < len(ranks):
        yield Flaw(("spec", "classes"), "two classes have the same rank", "say which of them gives watts first")


def _set_flaws(domain: PowerDomain) -> Iterator[Flaw]:
    if domain.spec.nodes is not None:
        yield from repeat_flaws(domain.spec.nodes.values, ("spec", "nodes", "values"))
    yield from repeat_flaws([feed.name for feed in domain.spec.feeds], ("spec", "feeds"))
    yield from repeat_flaws([each.name for each in domain.spec.classes], ("spec", "classes"))


RULES = (
    Rule(
        ("spec", "breaker", "curve"),
        "self.map(p, p.over).isSorted() && self.map(p, -p.seconds).isSorted() && "
        "self.all(p, self.exists_one(q, q.over == p.over) && self.exists_one(q, q.seconds == p.seconds))",
        "over must rise and seconds must fall from point to point",
        _curve_flaws,
    ),
    Rule(
        (),
        "!has(self.spec.feeds) || self.spec.feeds.all(f, f.name != self.metadata.name)",
        "a domain cannot feed itself; name the one above it",
        _self_flaws,
    ),
    Rule(
        ("spec",),
        "!has(self.breaker) || has(self.budgetWatts)",
        "a breaker without budgetWatts says nothing; give the budget that the curve is of",
        _breaker_flaws,
    ),
    Rule(
        ("spec", "classes"),
        "self.all(c, self.exists_one(d, d.rank == c.rank))",
        "two classes have the same rank; say which of them gives watts first",
        _rank_flaws,
    ),
)

SETS = (_set_flaws,)
"""What the types of the lists see to on the API server."""

KIND = Kind(
    name="PowerDomain",
    model=PowerDomain,
    plural="powerdomains",
    short_names=("pdom",),
    is_namespaced=False,
    columns=(
        Column("Type", ".spec.type", "string", "What it is."),
        Column("Budget", ".spec.budgetWatts", "number", "What may be drawn through it for ever, watts."),
        Column("Draw", ".status.drawWatts", "number", "What is drawn through it now, watts."),
        Column("Headroom", ".status.headroomWatts", "number", "What more work may begin to draw in it, watts."),
        Column("Devices", ".status.devices", "integer", "Devices that draw through it."),
        Column("Stale", ".status.staleDevices", "integer", "Devices not heard of lately.", is_wide=True),
        Column("Capped", ".status.cappedShare", "number", "Share of its devices that are held back.", is_wide=True),
        condition("Ready", "Whether its agents are heard and its budget is kept."),
        reason("Ready"),
        AGE,
    ),
    rules=RULES,
    checks=SETS,
    watched_by="power",
    watched_as="power_domains",
)
