"""PowerDomains' statuses in print: the reasons for one limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.printing.reported import Object, Reported, reported
from controller.api.power_domain import CappedDevice, PowerDomainStatus
from controller.loops.power.domain_status import fault_words

NOT_REPORTED = "-"


ReportedDomain = Reported[PowerDomainStatus]


def _feeds(domain: ReportedDomain) -> tuple[str, ...]:
    return tuple(each["name"] for each in domain.spec.get("feeds") or ())


def domains_of(objects: Sequence[Object]) -> tuple[ReportedDomain, ...]:
    """Domains with parents before children, otherwise by name."""
    ordered: dict[str, ReportedDomain] = {}
    left = {each.name: each for each in reported(objects, PowerDomainStatus)}
    while left:
        ready = [name for name, domain in left.items() if not any(feed in left for feed in _feeds(domain))]
        for name in ready or list(left):  # domains in a cycle are listed, too
            ordered[name] = left.pop(name)
    return tuple(ordered.values())


@dataclass(frozen=True, slots=True)
class Why:
    """Explanation as lines for people and as data for programs."""

    lines: tuple[str, ...]
    data: Object


def why(domains: Sequence[ReportedDomain], target: str) -> Why | None:
    """Explanation of the power limits of a domain, node or device; None if no status lists it."""
    named = next((each for each in domains if each.name == target), None)
    if named is not None:
        return _why_domain(domains, named)
    held = [(each, one) for each in domains for one in each.status.held_back if target in (one.device, one.node)]
    wrong = {
        (one.device, one.reason): one
        for each in domains
        for one in each.status.culprits
        if target in (one.device, one.node)
    }
    if not held and not wrong:
        return None
    lines = [f"{one.device} on {one.node} {fault_words(one.reason)}." for one in wrong.values()]
    for where, one in held:
        lines.append(
            f"{one.device} on {one.node} ({where.name}, class {one.service_class}) may draw {one.cap_watts:.0f} W and "
            f"needs {one.need_watts:.0f} W: {one.limited_by or 'no domain'} cannot carry the other "
            f"{one.need_watts - one.cap_watts:.0f} W; about {one.slower_share:.0%} slower."
        )
    for name in sorted({one.limited_by for _, one in held} - {""}):
        below = [one for each in _below(domains, name) for one in each.status.held_back if one.limited_by == name]
        lines += [f"Below {name} {line}." for line in _by_class(below)]
    data = {
        "target": target,
        "culprits": [one.plain() for one in wrong.values()],
        "heldBack": [{"domain": where.name, **one.plain()} for where, one in held],
    }
    return Why(tuple(lines), data)


def _why_domain(domains: Sequence[ReportedDomain], named: ReportedDomain) -> Why:
    status = named.status
    below = _below(domains, named.name)
    held = [one for each in below for one in each.status.held_back]
    lines = [f"{named.name} ({named.spec.get('type', 'domain')})"]
    if status.observed_generation is None:
        return Why((*lines, "  no status was reported yet: is power enabled in the operator?"), {"target": named.name})
    lines.append(
        f"  draws {_watts(status.draw_watts)} W, in the worst case {_watts(status.worst_watts)} W, of "
        f"{_watts(status.budget_watts)} W; headroom {_watts(status.headroom_watts)} W"
    )
    lines.append(
        f"  {status.held_back_devices} of {status.devices} devices are held back, {status.stale_devices} are silent"
    )
    lines += [f"  {each.type}: {each.status}, {each.reason}: {each.message}" for each in status.conditions]
    lines += [f"  {each.device} on {each.node} {fault_words(each.reason)}" for each in status.culprits]
    lines += [f"  {line}" for line in _by_class(held)]
    limits = {one.limited_by for one in held} - {named.name}
    lines += [
        f"  {name} above it is shorter of power: see `tonnage power explain {name}`" for name in sorted(limits) if name
    ]
    data = {"target": named.name, **status.plain(), "heldBackBelow": [one.plain() for one in held]}
    return Why(tuple(lines), data)


def _below(domains: Sequence[ReportedDomain], name: str) -> list[ReportedDomain]:
    """The domain and all domains fed through it."""
    found = {name}
    for each in domains:  # parents come first
        if found & set(_feeds(each)):
            found.add(each.name)
    return [each for each in domains if each.name in found]


def _by_class(held: Sequence[CappedDevice]) -> Iterator[str]:
    """Lines with the power that each class lacks, largest first."""
    lacking = {
        name: sum(one.need_watts - one.cap_watts for one in held if one.service_class == name)
        for name in {one.service_class for one in held}
    }
    for name, watts in sorted(lacking.items(), key=lambda each: -each[1]):
        mine = {one.device: one for one in held if one.service_class == name}
        slower = sum(one.slower_share for one in mine.values()) / len(mine)
        yield f"class {name} lacks {watts:.0f} W on {len(mine)} listed devices, about {slower:.0%} of their speed"


def _watts(value: float | None) -> str:
    return NOT_REPORTED if value is None else f"{value:.0f}"
