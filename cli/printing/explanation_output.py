"""Explanations of services, pods, gangs and nodes in print."""

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

import click
import numpy as np

from cli.printing.plan_figures import figure, gap_words, instances, money, named, plain, routes, written
from cli.printing.tables import table
from cluster.snapshot import device_numbers
from cluster.workloads import MemberGroup, PodShape
from controller.queries.explain import GangWhy, NodeWhy, PodWhy, ServiceWhy, Why

Document = dict[str, Any]

GIB = 2**30


def show(why: Why, output: str) -> None:
    """Print an explanation to standard output as `table`, `json` or `yaml`."""
    if output != "table":
        click.echo(written(document(why), output), nl=False)
        return
    for part in tables(why):
        click.echo(part)


def document(why: Why) -> Document:
    match why:
        case ServiceWhy():
            service, plan = why.service, why.plan
            return {
                "service": service.name,
                "model": service.model,
                "tpot_ms": figure(service.slo.tpot_s * 1000),
                "requests_per_second": None if service.demand is None else figure(service.demand.rate_per_s),
                "instances": named(plan.instances),
                "cost_per_hour": figure(plan.cost_per_hour),
                "bound": figure(plan.certificate.bound) if plan.certificate else None,
                "gap": figure(plan.certificate.gap) if plan.certificate else None,
                "reasons": plain(plan.notes),
                "refusal": plain(plan.refusal),
                "routing": list(routes(plan)),
            }
        case PodWhy():
            return _pod(why)
        case GangWhy():
            return {
                "gang": why.gang.name,
                "min_members": why.gang.min_members,
                "within": why.gang.within,
                "prefer_within": why.gang.prefer_within,
                "groups": [_group(each) for each in why.gang.groups],
                "domains": list(why.domains),
                "members": [{"pod": pod, "node": node, "devices": list(devices)} for pod, node, devices in why.members],
                "reason": plain(why.reason),
                "one_member": _pod(why.seat) if why.seat else None,
            }
        case NodeWhy():
            return {
                "node": why.name,
                "gpu_type": why.gpu_type,
                "schedulable": why.schedulable,
                "pods": [{"pod": pod, "devices": list(devices), "plan": plan} for pod, devices, plan in why.pods],
                "free": {
                    "cpu_milli": why.free_cpu_milli,
                    "memory_bytes": why.free_memory_bytes,
                    "gpu_milli": list(why.free_gpu_milli),
                },
            }
        case _:
            assert_never(why)


def _pod(why: PodWhy) -> Document:
    candidates = [
        {
            "node": why.nodes[candidate.node],
            "devices": list(device_numbers(candidate.devices)),
            "cost": figure(candidate.cost),
            "terms": {name: figure(value) for name, value in candidate.terms.items()},
        }
        for candidate in why.seats.candidates
    ]
    return {
        "pod": why.name,
        "asks": {
            **{name: getattr(why.shape, name) for name in ("cpu_milli", "memory_bytes", "gpus", "gpu_milli")},
            "gpu_types": list(why.shape.gpu_types),
        },
        "priority": why.priority,
        "gang": why.gang,
        "node_before": why.node_before,
        "node_after": why.node_after,
        "devices": list(why.devices),
        "reason": plain(why.reason),
        "candidates": candidates,
        "shortage": plain(why.seats.shortage),
    }


def _group(group: MemberGroup) -> Document:
    return {
        "name": group.name,
        "least": group.least,
        "most": group.most or None,
        "least_groups": group.least_groups,
        "within": group.within,
        "prefer_within": group.prefer_within,
        "members": list(group.members),
        "groups": [_group(each) for each in group.groups],
    }


def _group_lines(groups: Iterable[MemberGroup], running: frozenset[str], indent: str) -> Iterator[str]:
    for each in groups:
        of_groups = f", {each.least_groups} of its groups whole" if each.least_groups is not None else ""
        near = f", within one {each.within}" if each.within else ""
        runs = f"{len(running.intersection(each.pods))} of {len(each.pods)} members run"
        yield f"{indent}{each.name}: {runs}, at least {each.least} together{of_groups}{near}"
        yield from _group_lines(each.groups, running, indent + "  ")


def tables(why: Why) -> Iterator[str]:
    match why:
        case ServiceWhy():
            yield from _service_tables(why)
        case PodWhy():
            yield from _pod_tables(why)
        case GangWhy():
            gang = why.gang
            label = gang.within or gang.prefer_within
            near = f", {'all within one' if gang.within else 'in as few as possible of'} {label}" if label else ""
            yield f"{gang.name}: at least {gang.min_members} members together{near}"
            running = frozenset(pod for pod, node, _ in why.members if node is not None)
            yield from _group_lines(gang.groups, running, "  ")
            if why.reason:
                yield f"Held back: {why.reason.words}"
            if why.domains:
                yield f"{label}: {', '.join(why.domains)}"
            rows = ((pod, node or "-", ",".join(map(str, devices)) or "-") for pod, node, devices in why.members)
            yield "\n" + table(("MEMBER", "NODE", "DEVICES"), rows)
            if why.seat:
                yield from _pod_tables(why.seat)
        case NodeWhy():
            yield f"{why.name}: {why.gpu_type or 'no GPU type'}{'' if why.schedulable else ', unschedulable'}"
            gpus = ", ".join(f"{free / 10:g} %" for free in why.free_gpu_milli)
            free = f"{why.free_cpu_milli / 1000:g} cores, {why.free_memory_bytes / GIB:.4g} GiB"
            yield f"Free after the plan: {free}{', of its GPUs ' + gpus if gpus else ''}\n"
            there = ((pod, ",".join(map(str, devices)) or "-", plan) for pod, devices, plan in why.pods)
            yield table(("POD", "DEVICES", "PLAN"), there)
        case _:
            assert_never(why)


def _service_tables(why: ServiceWhy) -> Iterator[str]:
    service, plan = why.service, why.plan
    demand = "unknown demand" if service.demand is None else f"{service.demand.rate_per_s:g} requests per second"
    models = " or ".join(each.name for each in service.models)
    yield f"{service.name}: {models}, {demand}, {service.slo.label} per output token"
    if plan.refusal:
        yield f"Not planned: {plan.refusal.words}.\n"
        return
    gap = gap_words(plan.certificate.gap if plan.certificate else None)
    cost = f"${money(plan.cost_per_hour)} per hour" + (f" ({gap})" if gap else "")
    yield f"{instances(named(plan.instances))} for {cost}\n"
    yield table(("WHY", ""), ((note.code, note.words) for note in plan.notes))
    if plan.routing is not None:
        types = [
            each.name for n, each in enumerate(plan.routing.instance_types) if np.any(plan.routing.weight[:, :, n] > 0)
        ]
        rows = []
        for route in routes(plan):
            shares = (f"{100 * route['shares'][name]:.4g}" if name in route["shares"] else "-" for name in types)
            rows.append((f"≤ {route['input_tokens']}", f"≤ {route['output_tokens']}", *shares))
        yield table(("INPUT TOKENS", "OUTPUT TOKENS", *(f"% TO {name}" for name in types)), rows)


def _pod_tables(why: PodWhy) -> Iterator[str]:
    yield f"{why.name}: {_words(why.shape)}, priority {why.priority}"
    yield f"{_fate(why)}{': ' + why.reason.words if why.reason else ''}\n"
    if why.seats.shortage:
        if why.reason and why.reason.words == why.seats.shortage.words:
            return
        yield f"With everything else as planned, {why.seats.shortage.words}.\n"
        return
    if not why.seats.candidates:
        return
    terms = list(dict.fromkeys(name for candidate in why.seats.candidates for name in candidate.terms))
    context = f"Alone, without the rest of {why.gang}" if why.gang else "With everything else as planned"
    yield f"{context}, the best nodes for it; the lowest cost wins:"
    rows = []
    for candidate in why.seats.candidates:
        node = why.nodes[candidate.node]
        devices = ",".join(map(str, device_numbers(candidate.devices))) or "-"
        parts = (f"{candidate.terms.get(name, 0):.5g}" for name in terms)
        rows.append(("→" if node == why.node_after else "", node, devices, f"{candidate.cost:.5g}", *parts))
    yield table(("", "NODE", "DEVICES", "COST", *(name.upper() for name in terms)), rows)


def _fate(why: PodWhy) -> str:
    devices = f", devices {','.join(map(str, why.devices))}" if why.devices else ""
    match why.node_before, why.node_after:
        case None, None:
            return "Not placed"
        case None, node:
            return f"Starts on {node}{devices}"
        case node, None:
            return f"Leaves {node}"
        case before, after if before == after:
            return f"Stays on {after}{devices}"
        case before, after:
            return f"Moves from {before} to {after}{devices}"


def _words(shape: PodShape) -> str:
    if shape.gpus and not shape.is_whole_gpu:
        gpu = f"{shape.gpu_milli / 10:g} % of a GPU"
    else:
        gpu = f"{shape.gpus} GPU{'s' if shape.gpus != 1 else ''}"
    types = f" ({' or '.join(shape.gpu_types)})" if shape.gpu_types else ""
    return f"{gpu}{types}, {shape.cpu_milli / 1000:g} cores, {shape.memory_bytes / GIB:.4g} GiB"
