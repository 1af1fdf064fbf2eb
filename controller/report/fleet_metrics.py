"""Metrics of the cluster and its services after a cycle. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from cluster import autoscaling, changes, demand, plans, snapshot, workloads
from cluster.power import NEVER_S
from controller.cycle import Cycle
from controller.metrics.registry import Sample
from controller.report.idle_devices import idle_devices
from controller.report.scaling_status import NO_LIMITS, limit_of
from controller.snapshot.namespace_bounds import first_by_name
from controller.snapshot.scalers import is_past_bound
from controller.snapshot.teams import facts_of_teams
from placement.packing.spared import OUT_OF_STOPS

COSTS = {"cost_per_hour": "chosen", "cost_one_fewer": "one_fewer", "cost_one_more": "one_more"}


def samples_of_scaling(
    now: snapshot.Snapshot, findings: Iterable[plans.Finding], limits: Iterable[autoscaling.ConcurrencyLimit] = ()
) -> Iterator[Sample]:
    """Gauges of every policy that is not off. findings, limits: of the plan."""
    found = {each.about: each.reason for each in findings}
    decided = {each.scaler: each.limit for each in limits}
    for scaler in now.scalers:
        if scaler.mode != "Off" and not is_past_bound(scaler):
            policy, name, age_s = scaler.name, (scaler.name,), now.at_s - scaler.observed_at_s
            if scaler.replicas is not None:
                yield Sample("tonnage_scaling_replicas", (policy, "wanted"), scaler.replicas.wanted)
                yield Sample("tonnage_scaling_replicas", (policy, "ready"), scaler.replicas.ready)
                yield Sample("tonnage_scaling_capacity", name, scaler.replicas.ready * scaler.replica_load)
            if scaler.load is not None:
                yield Sample("tonnage_scaling_load", name, scaler.load)
                yield Sample("tonnage_scaling_sample_age_seconds", name, age_s)
            yield Sample("tonnage_scaling_metrics_missing", name, scaler.load is None or age_s >= scaler.max_age_s)
            yield Sample("tonnage_scaling_conflict", name, bool(scaler.conflict))
            points_s = scaler.lead_time.points_s
            for level in (0.5, 0.95):
                lead_s = float(np.quantile(points_s, level))
                yield Sample("tonnage_scaling_lead_seconds", (policy, f"{level:g}"), lead_s)
            if scaler.forecast is not None:
                ahead_s = float(np.median(points_s)) + max(0.0, scaler.observed_at_s - scaler.forecast.made_at_s)
                for level in (0.5, 0.9, 0.99):
                    load = scaler.forecast.quantile(level, ahead_s)
                    yield Sample("tonnage_scaling_forecast", (policy, f"{level:g}"), load)
            skill = scaler.skill
            if skill is not None:
                coverages: Mapping[str, float | None] = {"90": skill.coverage_90, "99": skill.coverage_99}
                for interval, coverage in coverages.items():
                    if coverage is not None:
                        yield Sample("tonnage_scaling_coverage_ratio", (policy, interval), coverage)
                if skill.skill is not None:
                    yield Sample("tonnage_scaling_skill_ratio", name, skill.skill)
            if (tuning := scaler.concurrency) is not None:
                wanted = decided.get(policy, tuning.wanted)
                for which, in_flight in {"wanted": wanted, "in_force": tuning.in_force_after(wanted)}.items():
                    yield Sample("tonnage_scaling_concurrency_limit", (policy, which), in_flight)
                if tuning.seen is not None and tuning.seen.complete:
                    yield Sample("tonnage_scaling_concurrency_in_flight", name, tuning.seen.in_flight)
                    yield Sample("tonnage_scaling_concurrency_latency_seconds", name, tuning.seen.p95_s)
            reason = found.get(f"ScalingPolicy/{policy}")
            if reason is not None:
                for figure, replicas in COSTS.items():
                    if figure in reason.figures:
                        cost = reason.figures[figure]
                        yield Sample("tonnage_scaling_cost_dollars_per_hour", (policy, replicas), cost)
                if (limit := limit_of(reason)) not in NO_LIMITS:
                    yield Sample("tonnage_scaling_limited", (policy, limit), 1)


IsRunning = Callable[[str], bool]
"""Whether a pod is running, not only bound."""


def running_instances(
    now: snapshot.Snapshot, is_running: IsRunning | None = None
) -> Mapping[str, Counter[workloads.InstanceType]]:
    """Number of instances on nodes by service, which need not exist, and instance type. is_running: the others do not
    count."""
    found: dict[str, Counter[workloads.InstanceType]] = {}
    types = [changes.instance_type_of(shape) for shape in now.pods.shapes]
    pods = zip(now.pods.owner, now.pods.shape.tolist(), now.pods.node.tolist(), strict=True)
    for row, (owner, shape, node) in enumerate(pods):
        kind = types[shape]
        if owner and kind and node != snapshot.PENDING and (is_running is None or is_running(now.pods.names[row])):
            found.setdefault(owner, Counter())[kind] += 1
    return found


class Draw(NamedTuple):
    """Power of a service's running instances, of all its pools."""

    watts: float
    per_token_j: float | None
    """Joules per output token of its demand; None: that is not known, or none."""


def draws_of(now: snapshot.Snapshot) -> Mapping[str, Draw]:
    """Draw by service, of those that run on nodes whose devices all report their energy or power.

    On a node of several workloads each device counts alike: which of them a pod has is known to no agent.
    """
    table = now.power
    if table is None:
        return {}
    # What is not known makes the sum of its node, and that of a service on it, no number.
    drawn = np.where(table.readings.at_s > NEVER_S, table.readings.draw_w, np.nan)
    devices = np.bincount(table.devices.domain, minlength=len(table.domains))
    each_w = np.bincount(table.devices.domain, weights=drawn, minlength=len(table.domains)) / np.maximum(devices, 1)
    of_node = {name: float(w) for name, w, count in zip(table.domains.names, each_w, devices, strict=True) if count}
    pods, watts, services = now.pods, defaultdict[str, float](float), {each.name: each for each in now.services}
    for owner, shape, node in zip(pods.owner, pods.shape.tolist(), pods.node.tolist(), strict=True):
        if owner in services and node != snapshot.PENDING and pods.shapes[shape].gpus:
            whole = services[owner].part_of or owner
            watts[whole] += of_node.get(now.nodes.names[node], np.nan) * pods.shapes[shape].gpus
    tokens = {name: _tokens_per_s(services[name].demand) for name in watts if name in services}
    return {
        name: Draw(total, total / tokens[name] if tokens.get(name) else None)
        for name, total in watts.items()
        if not np.isnan(total)
    }


def _tokens_per_s(asked: demand.Demand | None) -> float:
    """Output tokens per second of a demand, each bucket's requests as long as its middle; 0: not known."""
    if asked is None:
        return 0.0
    edges = np.array([0, *asked.grid.output_tokens])
    return float(asked.rate_per_s * (asked.share.sum(axis=0) @ (edges[1:] + edges[:-1])) / 2)


ALWAYS_SEEN = ("nodes", "pods")
MOST_SHOWN = 256
"""Services of a namespace that have metrics, the first by name: whoever creates services decides how many there are,
and each has several series, which Prometheus keeps for hours. Chosen: as many as ScalingPolicies."""


def samples_of(cycle: Cycle, since_s: Mapping[str, float]) -> Iterator[Sample]:
    """Gauges after a cycle: the cluster after its completed actions.

    since_s: time since which each workload is pending; keys `Pod/...` and `Gang/...` (see `pending_since`).
    """
    now = left_behind(cycle)
    yield from _devices(now)
    yield from _teams(now)
    open_nodes, pending = int(now.nodes.schedulable.sum()), len(now.pods.pending)
    yield Sample("tonnage_nodes", ("open",), open_nodes)
    yield Sample("tonnage_nodes", ("closed",), len(now.nodes) - open_nodes)
    yield Sample("tonnage_pods", ("running",), len(now.pods) - pending)
    yield Sample("tonnage_pods", ("pending",), pending)
    states = Counter(_gang_states(now))
    for state in ("running", "pending", "empty"):
        yield Sample("tonnage_gangs", (state,), states[state])
    for kind in ("Pod", "Gang"):
        oldest = min((at_s for workload, at_s in since_s.items() if workload.startswith(f"{kind}/")), default=now.at_s)
        yield Sample("tonnage_oldest_pending_seconds", (kind.lower(),), now.at_s - oldest)
    waits = Counter(each.reason.code for each in cycle.plan.unplaced)
    for code in sorted({OUT_OF_STOPS, *waits}):  # an alert watches that one, which stands at 0 otherwise
        yield Sample("tonnage_unplaced", (code,), waits[code])
    found = Counter(each.reason.code for each in cycle.plan.findings)
    # Without a finding 0 without a reason, so that a panel shows 0 instead of no data.
    for code, count in sorted(found.items()) or [("", 0)]:
        yield Sample("tonnage_findings", (code,), count)
    for part in dict.fromkeys((*ALWAYS_SEEN, *now.observed_at_s)):
        yield Sample("tonnage_observed_timestamp_seconds", (part,), now.at_s - now.age_s(part))
    yield from _services(cycle, now)
    yield from samples_of_scaling(now, cycle.plan.findings, cycle.plan.limits)


def left_behind(cycle: Cycle) -> snapshot.Snapshot:
    """Snapshot after the cycle's completed actions, before it is observed again."""
    return cycle.snapshot.after(step.action for step in cycle.outcome.done)


def pending_since(now: snapshot.Snapshot, before: Mapping[str, float]) -> dict[str, float]:
    """Time since which each pending pod and gang waits: from `before`, or that of this snapshot."""
    waiting = [f"Pod/{now.pods.names[row]}" for row in now.pods.pending.tolist()]
    waiting += [
        f"Gang/{gang.name}" for gang, state in zip(now.gangs, _gang_states(now), strict=True) if state == "pending"
    ]
    return {workload: before.get(workload, now.at_s) for workload in waiting}


def _devices(now: snapshot.Snapshot) -> Iterator[Sample]:
    nodes, idle, prices = now.nodes, idle_devices(now), now.device_prices()
    for number, gpu_type in enumerate(now.gpu_types):
        mine = nodes.gpu_type == number
        devices = {"allocated": np.where(mine, nodes.gpus - idle.all, 0.0)}
        for state in ("free", "stranded", "unwanted", "closed"):
            devices[state] = np.where(mine, getattr(idle, state), 0.0)
        for state, counts in devices.items():
            yield Sample("tonnage_gpus", (gpu_type.name, state), float(counts.sum()))
            yield Sample("tonnage_fleet_cost_dollars_per_hour", (gpu_type.name, state), float(counts @ prices))


def _teams(now: snapshot.Snapshot) -> Iterator[Sample]:
    for team, facts in facts_of_teams(now).items() if now.teams else ():
        for each in facts.devices:
            for state in ("used", "borrowed", "lent"):
                yield Sample("tonnage_team_gpus", (team, each.gpu_type, state), getattr(each, state))
        yield Sample("tonnage_team_waiting_gpus", (team,), facts.waiting)


def _gang_states(now: snapshot.Snapshot) -> list[str]:
    pods, states = now.pods, []
    for number, gang in enumerate(now.gangs):
        mine = np.flatnonzero(pods.gang == number)
        runs = mine[pods.node[mine] != snapshot.PENDING].tolist()
        is_whole = len(runs) >= gang.min_members and (not gang.groups or gang.lacks([pods.names[r] for r in runs]) <= 0)
        states.append("running" if is_whole else "pending" if len(mine) else "empty")
    return states


def _services(cycle: Cycle, now: snapshot.Snapshot) -> Iterator[Sample]:
    found = running_instances(now).items()
    running = {(owner, kind.name): count for owner, kinds in found for kind, count in kinds.items()}
    shown = first_by_name({each.service for each in cycle.plan.services}.union(name for name, _ in running), MOST_SHOWN)
    planned = [each for each in cycle.plan.services if each.service in shown]
    for name, draw in sorted(draws_of(now).items()):
        if name in shown:
            yield Sample("tonnage_service_draw_watts", (name,), draw.watts)
            if draw.per_token_j is not None:
                yield Sample("tonnage_service_joules_per_token", (name,), draw.per_token_j)
    for each in planned:
        if each.refusal is not None:
            yield Sample("tonnage_service_unplanned", (each.service, each.refusal.code), 1)
            continue
        yield Sample("tonnage_service_cost_dollars_per_hour", (each.service,), each.cost_per_hour)
        if (proof := each.certificate) is not None:
            yield Sample("tonnage_service_cost_bound_dollars_per_hour", (each.service,), proof.bound)
            yield Sample("tonnage_service_cost_gap_ratio", (each.service,), proof.gap)
    # An instance type that left the mix has 0 wanted until its last instance is gone.
    kept = {pair: count for pair, count in running.items() if pair[0] in shown}
    has_mix = {each.service for each in planned if each.refusal is None}
    wanted = {(each.service, kind.name): count for each in planned for kind, count in each.instances.items()}
    for pair in sorted({*kept, *wanted}):
        if pair in wanted or pair[0] in has_mix:
            yield Sample("tonnage_service_instances", (*pair, "wanted"), wanted.get(pair, 0))
        yield Sample("tonnage_service_instances", (*pair, "running"), kept.get(pair, 0))
