"""Differences in print: between a plan and the cluster, and between two states of an object."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from cli.printing.object_output import yaml_text
from cli.printing.plan_figures import figure, gap_words, instances, money, named, plain
from cluster.workloads import InstanceType
from controller.queries.plan_diff import OtherChange, PlanDiff, PodChange, ServiceChange

Document = dict[str, Any]

NOISE = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")
"""Metadata fields that only the server writes."""


def plan_lines(diff: PlanDiff) -> Iterator[str]:
    """Lines of a plan's changes: `+` starts, `-` stops, `>` moves, `~` scaled or other change, `!` not possible.

    The last line is a summary.
    """
    for service in diff.services:
        if service.is_change or service.is_refused:
            yield _service_change(service, service.before, service.cost_before)
            if service.is_planned_only and not service.is_refused:
                yield "    planned only: it has no spec.template, so that its instances are run by other means"
            if service.reason and not service.is_refused:
                yield f"    {service.reason.words}"
        elif gap := gap_words(service.gap):
            yield f"  ModelService/{service.service} is unchanged ({gap})"
    yield from map(_pod, diff.pods)
    yield from map(_other, diff.others)
    yield from (f"! {workload}: {reason.words}" for workload, reason in diff.left_over)
    if diff.awaited:
        yield f"  {len(diff.awaited)} pods of scaled services follow in the next plan, once they exist"
    yield summary(diff)


def _service_change(now: ServiceChange, before: Mapping[InstanceType, int] | None, cost_before: float) -> str:
    """Line of a change from the mix before; None: the service is new."""
    if now.is_refused:
        return f"! ModelService/{now.service}: {now.reason.words if now.reason else 'no plan'}"
    sign, mix = ("+", "new") if before is None else ("~", instances(before))
    gap = f" ({words})" if (words := gap_words(now.gap)) else ""
    cost = f"${money(cost_before)} → ${money(now.cost_after)} per hour{gap}"
    return f"{sign} ModelService/{now.service}: {mix} → {instances(now.after)}, {cost}"


def _pod(change: PodChange) -> str:
    devices = f", devices {','.join(map(str, change.devices))}" if change.devices else ""
    match change.node_before, change.node_after:
        case None, node:
            return f"+ Pod/{change.pod} → {node}{devices}: {change.reason.words}"
        case node, None:
            return f"- Pod/{change.pod} leaves {node}: {change.reason.words}"
        case before, after:
            return f"> Pod/{change.pod}: {before} → {after}{devices}: {change.reason.words}"


def _other(change: OtherChange) -> str:
    return f"~ {change.subject}: {change.change}: {change.reason.words}"


def summary(diff: PlanDiff) -> str:
    if diff.is_empty and not diff.left_over:
        return f"Nothing would change; services cost ${money(diff.cost_after)} per hour."
    starts = sum(1 for pod in diff.pods if pod.node_before is None)
    stops = sum(1 for pod in diff.pods if pod.node_after is None)
    changed = [service for service in diff.services if service.is_change]
    apart = sum(1 for service in changed if service.is_planned_only)
    only = f"{apart} planned only; " if apart else ""
    moves = len(diff.pods) - starts - stops
    others = f"{len(diff.others)} other changes; " if diff.others else ""
    return (
        f"{starts} pods would start, {stops} stop, {moves} move; {len(changed) - apart} services scaled; {only}{others}"
        f"{len(diff.left_over)} unplaced; services ${money(diff.cost_before)} → ${money(diff.cost_after)} per hour."
    )


def document(diff: PlanDiff) -> Document:
    """Changes as plain data, the `changes` of a plan's document."""
    return {
        "cost_per_hour_before": figure(diff.cost_before),
        "cost_per_hour_after": figure(diff.cost_after),
        "services": [
            {
                "name": each.service,
                "before": named(each.before),
                "after": named(each.after),
                "cost_per_hour_before": figure(each.cost_before),
                "cost_per_hour_after": figure(each.cost_after),
                "gap": figure(each.gap),
                "planned_only": each.is_planned_only,
                "reason": plain(each.reason),
            }
            for each in diff.services
        ],
        "pods": plain(diff.pods),
        "others": plain(diff.others),
    }


def object_lines(name: str, before: Document | None, after: Document | None) -> list[str]:
    """Unified difference between two states of one object; empty if they are equal."""
    old, new = (yaml_text(without_server_fields(each)).splitlines() if each else [] for each in (before, after))
    return list(difflib.unified_diff(old, new, f"{name} (now)", f"{name} (then)", lineterm=""))


def without_server_fields(obj: Document) -> Document:
    """Object without status and metadata that the server writes."""
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key not in NOISE}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def change_lines(before: PlanDiff, after: PlanDiff) -> Iterator[str]:
    """Lines of the difference between two plans: mixes of services, and nodes of pods."""
    yield from list(_changes(before, after)) or ("no change",)
    widest = max(after.services, key=lambda each: each.gap, default=None)
    gap = f", {widest.service}: {words}" if widest and (words := gap_words(widest.gap)) else ""
    yield f"services ${money(before.cost_after)} → ${money(after.cost_after)} per hour in the new plan{gap}"


def _changes(before: PlanDiff, after: PlanDiff) -> Iterator[str]:
    wanted = {each.service: each for each in before.services}
    for service in after.services:
        was = wanted.pop(service.service, None)
        if was is None or (was.after, was.is_refused) != (service.after, service.is_refused):
            yield _service_change(service, was.after if was else None, was.cost_after if was else 0.0)
    yield from (f"- ModelService/{name} is no longer planned" for name in wanted)
    fates, elsewhere = {pod.pod: pod for pod in before.pods}, 0
    for pod in after.pods:
        fate = fates.pop(pod.pod, None)
        if fate is None or (fate.node_after is None) != (pod.node_after is None):
            yield _pod(pod)
        else:
            elsewhere += fate.node_after != pod.node_after
    yield from (f"  Pod/{fate.pod} would not change; before: {_pod(fate)}" for fate in fates.values())
    known = {(each.subject, each.change) for each in before.others}
    yield from (_other(other) for other in after.others if (other.subject, other.change) not in known)
    if elsewhere:
        yield f"  {elsewhere} pods would go to a different node than before"
    left_over = {workload for workload, _ in before.left_over}
    yield from (f"! {name}: {reason.words}" for name, reason in after.left_over if name not in left_over)
