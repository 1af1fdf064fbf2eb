"""Teams of a snapshot, from their objects and the labels of namespaces, and what each holds, borrows and lends."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.errors import meant
from cluster.quotas import QuotaShare
from cluster.snapshot import Snapshot
from cluster.teams import Amounts, Team
from controller.api.team import Team as TeamObject, TeamAmounts, TeamDevices, TeamStatus
from controller.objects.read import Findings, Read
from controller.snapshot.nodes import TypeIndex
from placement.packing.shares import MICRO, Shares

HALF_LIFE_S = 86_400.0
"""Time after which what was borrowed counts half. Chosen: who had the nights of idle teams waits by day."""
EVERY_S = 60.0
"""Seconds after which the average of what is borrowed is written anew."""
NO_TYPE = "-"


def teams_from(
    read: Iterable[Read[TeamObject]], namespaces: Mapping[str, Mapping[str, str]], types: TypeIndex, findings: Findings
) -> tuple[Team, ...]:
    """Teams by name, each namespace in one; those without errors in their shares."""
    teams, taken = list[Team](), dict[str, str]()
    known = [each.name for each in types.types]
    for each in read:
        name, spec = each.object.metadata.name, each.object.spec
        unknown = [
            (path, one) for path in ("share", "borrowing") for one in getattr(spec, path).gpus if one not in known
        ]
        for path, one in unknown:
            findings.mistake(each.mistake(("spec", path, "gpus"), f"there is no GPUType {one!r}", meant(one, known)))
        mine = [ns for ns, labels in namespaces.items() if spec.namespaces.items() <= labels.items()]
        for space in sorted(ns for ns in mine if ns in taken):
            findings.mistake(
                each.mistake(
                    ("spec", "namespaces"), f"namespace {space} belongs to Team {taken[space]}", "let it match one Team"
                )
            )
        own = frozenset(ns for ns in mine if ns not in taken)
        taken |= dict.fromkeys(own, name)
        if not unknown:
            amounts = _amounts(spec.share), _amounts(spec.borrowing)
            usage = each.object.status.usage
            teams.append(Team(name, own, *amounts, spec.weight, spec.min_run, spec.max_wait, usage))
    return tuple(teams)


def _amounts(written: TeamAmounts) -> Amounts:
    return Amounts({name: math.floor(1000 * each) for name, each in written.gpus.items()}, written.dollars_per_hour)


def with_team_limits(now: Snapshot) -> Snapshot:
    """The snapshot whose services know what the limit of their team leaves them beside its other pods.

    In dollars, an instance counts at the price of its type without spot.
    """
    own = {each.name for each in now.services if each.quota_ask is not None}
    if not now.teams or not own:
        return now
    beside = Shares(now, np.array([owner not in own for owner in now.pods.owner], dtype=np.bool_))
    limits = dict[str, tuple[QuotaShare, ...]]()
    cents = {kind.name: math.ceil(100 * kind.price_per_hour) for kind in now.gpu_types}
    for number, team in enumerate(now.teams):
        found = [
            QuotaShare(f"{name} of Team {team.name}", max(0, int(left) // 1000), per_device={name: 1})
            for name, left in zip(now.gpu_type_names, beside.most[number] - beside.used[number], strict=False)
            if name in team.borrowing.gpu_milli
        ]
        if team.borrowing.usd_per_hour is not None:
            left = max(0, int(beside.most_usd[number] - beside.usd[number])) * 100 // (1000 * MICRO)
            found.append(QuotaShare(f"cents per hour of Team {team.name}", left, per_device=cents))
        limits |= dict.fromkeys(team.namespaces, tuple(found))
    limited = ((each, limits.get(each.name.partition("/")[0], ()) if each.name in own else ()) for each in now.services)
    return replace(now, services=tuple(replace(each, quotas=(*each.quotas, *more)) for each, more in limited))


@dataclass(frozen=True, slots=True)
class TeamFacts:
    """What a team holds and waits for."""

    devices: tuple[TeamDevices, ...]
    borrowed: float
    waiting: float
    usd_per_hour: float


def facts_of_teams(now: Snapshot) -> dict[str, TeamFacts]:
    """State of each team by name; what pods of no team hold is under the empty name.

    Of an idle share, as much is lent as others hold beyond theirs.
    """
    names, of_all = (*now.gpu_type_names, NO_TYPE), Shares(now, np.ones(len(now.pods), dtype=np.bool_))
    held, usd, pending = of_all.used / 1000, of_all.usd / (1000 * MICRO), now.pods.pending
    waits = np.bincount(of_all.team[pending], of_all.milli[pending], len(held)) / 1000
    share = of_all.share / 1000
    for number, team in enumerate(now.teams):
        if team.share.usd_per_hour is not None:  # as much of each type as its dollars pay of what it holds
            share[number] = held[number] * min(1.0, team.share.usd_per_hour / max(usd[number], 1e-9))
    beyond = np.maximum(0.0, held - share)
    lent = np.minimum(np.maximum(0.0, share - held), beyond.sum(axis=0))
    return {
        name: TeamFacts(
            tuple(
                TeamDevices(gpu_type=gpu_type, used=_figure(h), borrowed=_figure(b), lent=_figure(s))
                for gpu_type, h, b, s in zip(names, held[number], beyond[number], lent[number], strict=True)
                if h or s
            ),
            _figure(beyond[number].sum()),
            _figure(waits[number]),
            _figure(usd[number]),
        )
        for number, name in enumerate((*(team.name for team in now.teams), ""))
    }


def _figure(value: float) -> float:
    return round(float(value), 3)


def team_status_after(was: TeamStatus, facts: TeamFacts, at_s: float) -> TeamStatus:
    """The status with these facts, and the average of what is borrowed as it is by now."""
    usage, usage_at = was.usage, was.usage_at
    if usage_at is None or at_s - usage_at >= EVERY_S:
        kept = 0.5 ** ((at_s - usage_at) / HALF_LIFE_S) if usage_at is not None else 1.0
        fresh = _figure(kept * was.usage + (1.0 - kept) * was.borrowed)
        usage, usage_at = (fresh, at_s) if fresh != usage or facts.borrowed or usage_at is None else (usage, usage_at)
    return was.model_copy(
        update={
            "used": _figure(sum(each.used for each in facts.devices)),
            "borrowed": facts.borrowed,
            "lent": _figure(sum(each.lent for each in facts.devices)),
            "waiting": facts.waiting,
            "dollars_per_hour": facts.usd_per_hour,
            "devices": facts.devices,
            "usage": usage,
            "usage_at": usage_at,
        }
    )
