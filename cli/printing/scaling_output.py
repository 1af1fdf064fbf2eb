"""ScalingPolicies' statuses in print: the explanation of one decision."""

import math
from collections.abc import Iterable, Iterator

from cli.printing.columns import columns, human_duration
from cli.printing.reported import Object, Reported, reported
from controller.api.scaling_policy import ScalingPolicyStatus

NONE = "-"


ReportedPolicy = Reported[ScalingPolicyStatus]


def policies_of(objects: Iterable[Object]) -> list[ReportedPolicy]:
    """Policies by namespace and name."""
    return reported(objects, ScalingPolicyStatus)


def _target(policy: ReportedPolicy) -> str:
    return f"{policy.spec['target']['kind']}/{policy.spec['target']['name']}"


def _mode(policy: ReportedPolicy) -> str:
    return str(policy.spec.get("mode", "Recommend"))


def as_data(policy: ReportedPolicy) -> Object:
    """Status fields of the API with the policy's name, target and mode, for programs."""
    about = {"namespace": policy.namespace, "name": policy.name, "target": _target(policy), "mode": _mode(policy)}
    return {**about, **policy.status.plain()}


def explanation(policy: ReportedPolicy, now_s: float) -> list[str]:
    """The decision in lines: what it asks for, from what, at which cost, and what holds it back.

    now_s: seconds since the epoch.
    """
    status = policy.status
    lines = [f"ScalingPolicy/{policy.namespace}/{policy.name}: {_target(policy)}, mode {_mode(policy)}"]
    if status.observed_generation is None:
        return [*lines, "  no status was reported yet: does the operator run, and is its autoscaler enabled?"]
    lines += [f"  {line}" for line in _decision(policy, now_s)]
    lines += ["", *_costs(status)]
    if status.limited_by:
        lines += ["", f"  limited by: {status.limited_by}"]
    lines += [f"  {line}" for line in _concurrency(status)]
    return [*lines, "", *(f"  {each.type}: {each.status}, {each.reason}: {each.message}" for each in status.conditions)]


def _decision(policy: ReportedPolicy, now_s: float) -> Iterator[str]:
    """Replicas, and the load, forecast and lead time that they follow from."""
    status, spec, forecast, lead = policy.status, policy.spec, policy.status.forecast, policy.status.lead_time
    bounds = f"{spec.get('minReplicas', 1)} to {spec['maxReplicas']} are allowed"
    if status.recommended_replicas is None:
        yield f"no decision; {bounds}"
    else:
        now = f"its spec asks for {_number(status.desired_replicas)}, {_number(status.current_replicas)} are ready"
        yield f"{status.recommended_replicas} replicas desired; {now}; {bounds}"
        if _mode(policy) == "Recommend":
            yield "nothing is changed in this mode"
    if status.load is None or status.load_time is None:
        yield "load: not measured"
    else:
        age = human_duration(now_s - status.load_time)
        yield f"load: {_number(status.load)}, measured {age} ago; one replica serves {_number(status.replica_load)}"
    if forecast is None:
        yield "forecast: none yet; the present load decides"
    else:
        model = f" by {forecast.model}" if forecast.model else ""
        yield (
            f"forecast in {human_duration(forecast.at_seconds)}{model}: p50 {_number(forecast.p50)}, "
            f"p90 {_number(forecast.p90)}, p99 {_number(forecast.p99)}"
        )
        if status.coverage90 is not None and status.coverage99 is not None:
            inside = f"{status.coverage90:.1%} were inside the 90 % interval, {status.coverage99:.1%} inside 99 %"
            yield f"past loads: {inside}"
        if status.skill is not None:
            yield f"skill: {status.skill:+.1%} against the naive forecast"
    if lead is not None:
        source = f"learned from {lead.samples} starts" if lead.samples else "assumed"
        yield f"lead time: {human_duration(lead.p50)}, in 1 of 20 cases {human_duration(lead.p95)} or more; {source}"


def _concurrency(status: ScalingPolicyStatus) -> Iterator[str]:
    """Concurrency limit: what each replica should serve at once, why, and what was measured under other limits."""
    tuned = status.concurrency
    if tuned is None:
        return
    now = "in force" if tuned.limit == tuned.in_force else f"{tuned.in_force} in force"
    yield ""
    yield f"concurrency: {tuned.limit} requests at once by replica, {now}; {tuned.decisions} decisions so far"
    if tuned.message:
        yield f"{tuned.reason}: {tuned.message}"
    arms = tuned.learned[0].arms if tuned.learned else ()
    if arms:
        rows = [(str(arm.limit), f"{math.exp(arm.throughput):.4g}/s", f"{math.exp(arm.p95):.3g}s") for arm in arms]
        yield from columns(("LIMIT", "THROUGHPUT", "P95"), rows).splitlines()


def _costs(status: ScalingPolicyStatus) -> Iterator[str]:
    """Expected cost of the desired replicas and of their neighbours."""
    cost, replicas = status.expected_cost, status.recommended_replicas
    if cost is None or replicas is None:
        yield "  no expected cost: there is no forecast"
    else:
        lines = []
        for count, dollars in ((replicas - 1, cost.one_fewer), (replicas, cost.chosen), (replicas + 1, cost.one_more)):
            if dollars is not None:
                more = "desired" if count == replicas else f"{dollars - cost.chosen:+.2f}"
                lines.append((str(count), f"${dollars:.2f}/h", more))
        table = columns(("REPLICAS", "EXPECTED COST", "DIFFERENCE"), lines)
        yield from (f"  {line}" for line in table.splitlines())
        if status.chosen_quantile is not None:
            yield f"  They serve the load at the lead time with probability {status.chosen_quantile:.1%}."


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"
