"""Domain incidents: several suspects under one switch or in one rack are one fault of the domain."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import chain

from health.remediation.facts import Situation
from health.remediation.folding import closed, united
from health.remediation.incidents import Incident, Phase, Remedy
from health.remediation.policy import Policy
from health.remediation.subjects import domain_subject

_BEFORE_REPAIR = (Phase.SUSPECTED, Phase.ACTING, Phase.QUARANTINED)


def merged(incidents: Mapping[str, Incident], situation: Situation, policy: Policy) -> dict[str, Incident]:
    """Incidents, with suspects that appeared together in one failure domain merged into one of the domain.

    The merged ones close, so that their taints go: a bad switch is no reason to distrust its nodes one by one.
    """
    after = dict(incidents)
    for domain in _smallest_first(situation):
        found = [each for each in _suspects(after) if _lies_in(each, domain, situation)]
        known = after.get(domain_subject(domain))
        together = _together(found, known, policy)
        if together:
            after[domain_subject(domain)] = _of_domain(domain, together, known, situation.now_s)
            for each in together:
                after[each.id] = closed(each, situation.now_s, f"part of {domain_subject(domain)}")
    return after


def _smallest_first(situation: Situation) -> Iterator[str]:
    """Domains that tell nodes apart: one that holds all nodes names nothing."""
    sizes: dict[str, int] = {}
    for domain in chain.from_iterable(node.domains for node in situation.nodes.values()):
        sizes[domain] = sizes.get(domain, 0) + 1
    telling = [domain for domain, size in sizes.items() if 1 < size < len(situation.nodes)]
    return iter(sorted(telling, key=lambda domain: (sizes[domain], domain)))


def _suspects(incidents: Mapping[str, Incident]) -> list[Incident]:
    return [
        each
        for each in incidents.values()
        if each.phase in _BEFORE_REPAIR and each.nodes and not each.domain and not each.program_error
    ]


def _lies_in(incident: Incident, domain: str, situation: Situation) -> bool:
    return all(key.name in situation.nodes and domain in situation.nodes[key.name].domains for key in incident.nodes)


def _together(found: list[Incident], known: Incident | None, policy: Policy) -> list[Incident]:
    """Suspects that belong to one fault: close in time to the open domain incident, or enough of them to each other."""
    if known is not None and known.is_open:
        window = (known.since_s - policy.domain_window_s, known.seen_s + policy.domain_window_s)
        return [each for each in found if window[0] <= each.since_s <= window[1]]
    best: list[Incident] = []
    for first in found:
        near = [each for each in found if 0 <= each.since_s - first.since_s <= policy.domain_window_s]
        nodes = {key for each in near for key in each.nodes}
        if len(near) >= policy.domain_suspects <= len(nodes) and len(near) > len(best):
            best = near
    return best


def _of_domain(domain: str, together: list[Incident], known: Incident | None, now_s: float) -> Incident:
    first = replace(
        together[0],
        id=domain_subject(domain),
        generation=known.generation + 1 if known is not None else 1,
        phase=Phase.SUSPECTED,
        domain=domain,
        remedy=Remedy.NONE,
        acted_s=float("inf"),
        phase_since_s=now_s,
        closed_s=known.closed_s if known is not None else float("-inf"),
        strikes=known.strikes if known is not None else 0,
        waits_for="",
    )
    return reduce(united, together, known if known is not None and known.is_open else first)
