"""Table of all metrics that Tonnage exposes: name, kind, meaning, labels. No others may be exposed."""

import re
from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["counter", "gauge", "histogram"]

CYCLE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Bucket edges of cycles. The goals are 0.5 s (median) and 2 s (99 %); the largest exceeds every planning deadline."""
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
"""Bucket edges of API requests. An unloaded API server answers in 1 to 20 ms; the timeout is 30 s."""
WAIT_BUCKETS_S = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Bucket edges of waiting pods, from one cycle to a day: on a full fleet pods wait for others to end."""
REACTION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Bucket edges of the power loop's reaction; the goal is 0.5 s for 99 %."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Definition of one Prometheus metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bucket edges of a histogram; empty for other kinds."""


BUCKETS = {
    "tonnage_cycle_seconds": CYCLE_BUCKETS_S,
    "tonnage_cycle_stage_seconds": CYCLE_BUCKETS_S,
    "tonnage_pod_wait_seconds": WAIT_BUCKETS_S,
    "tonnage_api_request_seconds": REQUEST_BUCKETS_S,
    "tonnage_power_reaction_seconds": REACTION_BUCKETS_S,
}
"""Bucket edges of the histograms."""
_ENTRY = re.compile(r"^(counter|gauge|histogram) (\w+)(?:\{(.+)\})?\n((?:    .+\n)+)", re.MULTILINE)


def described(text: str) -> tuple[Metric, ...]:
    """Metrics that a text describes: a line `kind name{label, label}` for each, and its meaning in indented lines.

    Raises ValueError for anything else in the text.
    """
    if rest := _ENTRY.sub("", text).strip():
        raise ValueError(f"no metric: {rest}")
    return tuple(
        Metric(
            name,
            cast(Kind, kind),
            " ".join(meaning.split()),
            tuple(labels.split(", ")) if labels else (),
            BUCKETS.get(name, ()),
        )
        for kind, name, labels, meaning in _ENTRY.findall(text)
    )


FLEET = described("""
gauge tonnage_gpus{gpu_type, state}
    Devices by state. Allocated: held by pods. Stranded: idle, but unusable for typical pods, as another resource of
    their node is short (expected value). Unwanted: idle, of a type that no pod may use. Free: idle and usable. Closed:
    idle on nodes where no pod may start (cordoned, not ready, tainted). The sum is all devices.
gauge tonnage_fleet_cost_dollars_per_hour{gpu_type, state}
    Cost of the devices by state, US dollars per hour at the price of their GPUType.
gauge tonnage_team_gpus{team, gpu_type, state}
    Devices of a Team by state: used, borrowed (those beyond its share), lent (those of its share that others hold). An
    empty team: pods of no team.
gauge tonnage_team_waiting_gpus{team}
    Devices that the pods of a Team wait for.
gauge tonnage_nodes{state}
    Nodes by state: open (schedulable), closed (cordoned, not ready).
gauge tonnage_pods{state}
    Pods by state: running (holding resources), pending.
gauge tonnage_gangs{state}
    Gangs by state: running (enough members), pending, empty (without pods).
gauge tonnage_oldest_pending_seconds{kind}
    Longest time that a pod or gang has been pending since this leader first observed it; 0 when none is pending.
gauge tonnage_unplaced{reason}
    Pods and gangs that the last plan could not place, by reason.
gauge tonnage_findings{reason}
    Verdicts and forecasts of the last plan, by reason.
gauge tonnage_observed_timestamp_seconds{part}
    Time when each part of the cluster was last observed.
""")

SERVICES = described("""
gauge tonnage_service_cost_dollars_per_hour{model_service}
    Cost of a service's planned GPU mix, US dollars per hour.
gauge tonnage_service_cost_bound_dollars_per_hour{model_service}
    Proven lower bound of the cost of any GPU mix that serves the service.
gauge tonnage_service_cost_gap_ratio{model_service}
    Fraction of the cost above the proven lower bound; 0: proven cheapest.
gauge tonnage_service_draw_watts{model_service}
    Draw of the GPUs of a service's running instances, by the counters that node agents read.
gauge tonnage_service_joules_per_token{model_service}
    That draw over the output tokens of the service's demand.
gauge tonnage_service_instances{model_service, instance_type, state}
    Instances of a service by instance type and state: wanted (by the plan), running.
gauge tonnage_service_unplanned{model_service, reason}
    1 for a service without a GPU mix in the last plan, by reason; its instances stay unchanged.
""")

AUTOSCALER = described("""
gauge tonnage_scaling_replicas{policy, state}
    Replicas of a policy's target by state: wanted (by its spec), ready.
gauge tonnage_scaling_load{policy}
    Last measured load of a policy, in its own unit.
gauge tonnage_scaling_capacity{policy}
    Load that the ready replicas serve within the SLO.
gauge tonnage_scaling_forecast{policy, level}
    Forecast of the load at the median lead time, by level of probability: 0.5, 0.9, 0.99.
gauge tonnage_scaling_lead_seconds{policy, level}
    Time from the order of a replica to its readiness, by level of probability: 0.5, 0.95.
gauge tonnage_scaling_coverage_ratio{policy, interval}
    Fraction of past loads inside the forecasts' interval, by its nominal percentage: 90, 99.
gauge tonnage_scaling_skill_ratio{policy}
    1 - loss of a policy's forecasts / loss of naive ones; above 0: better than naive.
gauge tonnage_scaling_cost_dollars_per_hour{policy, replicas}
    Expected cost of replicas: chosen, one_fewer, one_more; load expected to be missed counts as a cost.
gauge tonnage_scaling_limited{policy, limit}
    1 for what limited the decision.
gauge tonnage_scaling_sample_age_seconds{policy}
    Age of the last sample of the load.
gauge tonnage_scaling_metrics_missing{policy}
    1 while the load of a policy is not measured or stale, else 0; nothing is then scaled down.
gauge tonnage_scaling_concurrency_limit{policy, limit}
    Requests that one replica should serve at once (wanted), and those of the limit in force (in_force).
gauge tonnage_scaling_concurrency_in_flight{policy}
    Mean requests that one replica served at once in the last interval of tuning.
gauge tonnage_scaling_concurrency_latency_seconds{policy}
    95th percentile of the latency that bounds the concurrency, in the last interval of tuning.
gauge tonnage_scaling_conflict{policy}
    1 while another autoscaler scales the target, else 0.
""")

LOOP = described("""
counter tonnage_cycles_total{result}
    Cycles by result: acted, quiet (nothing to do), blind (the cluster could not be observed), failed.
histogram tonnage_cycle_seconds
    Duration of a cycle.
histogram tonnage_cycle_stage_seconds{stage}
    Duration of a stage of a cycle.
gauge tonnage_last_cycle_timestamp_seconds
    End of the last cycle that observed the cluster, or time when this replica became leader; 0: never led.
counter tonnage_device_seconds_total{team, namespace, gpu_type, state}
    Seconds of devices by who held them, and whether they were used; idle ones are of no namespace. Past 4,096
    series, namespaces count as (others).
counter tonnage_device_dollars_total{team, namespace, gpu_type, state}
    Cost of those seconds, US dollars at the price of their GPUType.
counter tonnage_actions_total{action, result}
    Actions by result: done; failed; skipped after a failure; stuck (the rollback of a partly placed gang or of an
    unbound pod failed).
counter tonnage_guard_refusals_total{reason}
    Actions that the guard removed from plans, by reason.
counter tonnage_decider_failures_total{decider}
    Plans that were made without a decider because it failed by a bug, by decider.
counter tonnage_plans_out_of_time_total{reason}
    Plans that the deadline cut short, by what was cut: the machine was too slow or too busy.
histogram tonnage_pod_wait_seconds
    Time from the first observation of a pending pod by this leader until it was placed.
""")

PROCESS = described("""
gauge tonnage_leader
    1 in the replica that holds the Lease and writes, 0 in others.
gauge tonnage_lease_epoch
    Lease epoch: number of changes of the leader; stamped on every write.
counter tonnage_fenced_writes_total
    Writes that the API server refused because another replica leads.
counter tonnage_api_requests_total{verb, code}
    Requests to the Kubernetes API.
counter tonnage_api_writes_total{resource, verb}
    Writes to the Kubernetes API by resource; updates are renewals of the Lease.
histogram tonnage_api_request_seconds{verb}
    Duration of requests to the Kubernetes API, without watches, which stay open.
gauge tonnage_build_info{version}
    Always 1, with the running version as a label.
""")

BACKGROUND = described("""
gauge tonnage_background_up
    1 while the driver of background work is up; 0 also while there is no work for it, and in a replica that does not
    lead.
gauge tonnage_background_tasks_open
    Background tasks without a result.
counter tonnage_background_tasks_total{kind, result}
    Background tasks that ended, by kind and result: done, failed.
counter tonnage_background_restarts_total{reason}
    Drivers of background work that were lost, by reason; their open tasks are given to the next one.
""")

POWER = described("""
gauge tonnage_power_draw_watts{power_domain}
    Power drawn in a PowerDomain now: readings, the worst case of stale devices, and otherWatts.
gauge tonnage_power_worst_watts{power_domain}
    Worst-case power of a PowerDomain: all power that was granted and may still be in force.
gauge tonnage_power_headroom_watts{power_domain}
    Power that new work may use: the budget less the draw and its measured spike; negative when over the budget.
gauge tonnage_power_budget_watts{power_domain}
    Power budget in force.
gauge tonnage_power_brake{power_domain}
    1 while a hardware power brake is inferred: the draw was near the budget, and most devices now draw far less.
gauge tonnage_power_devices{power_domain, state}
    Devices by state: free (not limited), held_back (limited), stale (no readings), disobedient (above their limit).
    The sum is all devices.
gauge tonnage_power_short_watts{power_domain, power_class}
    Power that devices of a class need and are not granted.
""")

POWER_LOOP = described("""
gauge tonnage_power_agents
    Node agents that are connected.
counter tonnage_power_reports_total
    Valid reports of node agents.
counter tonnage_power_leases_total
    Power leases sent to node agents.
counter tonnage_power_messages_refused_total{reason}
    Messages of node agents that were refused, by reason.
counter tonnage_power_failed_turns_total
    Turns of the power loop that failed by a bug.
histogram tonnage_power_reaction_seconds
    Time from the receipt of a report until the resulting lease was sent.
gauge tonnage_power_turn_seconds
    Duration of the last turn of the power loop.
gauge tonnage_power_last_turn_timestamp_seconds
    End of the last turn of the power loop; 0 in a replica that does not lead, or when power is disabled.
""")

SCALING = described("""
gauge tonnage_desired_replicas{policy}
    Recommended replicas of a ScalingPolicy, as the external metric of the same name has them.
""")

DEMAND = described("""
counter tonnage_demand_readings_total{source, result}
    Readings of the sources of demand, by source (prometheus, custom, push) and result: ok, or the reason why a
    reading failed, as in the condition MetricsAvailable.
""")

HEALTH = described("""
gauge tonnage_health_incidents{phase}
    Open FaultIncidents by phase.
gauge tonnage_health_nodes_out{state}
    Nodes with a taint of ours: in quarantine, on probation.
gauge tonnage_health_waiting{reason}
    Open FaultIncidents by what keeps them from acting: the reason of their condition Waiting; Nothing: they act.
gauge tonnage_health_heard_share
    Share of the nodes under recorded jobs whose agents are heard; below a policy's heardShare nothing is begun.
gauge tonnage_health_checkpoint_lost_share{which}
    Part of their time that jobs whose checkpoints were seen lose by them and by work done again: as it is, as advised.
gauge tonnage_health_verdicts{verdict}
    Verdicts on jobs since this leader began, by syndrome or cause.
gauge tonnage_health_refused{cause}
    Reports and records that were not taken since this leader began, by cause.
gauge tonnage_health_probes{answer}
    Suspected faults of the network that pair probes have answered since this leader began, by answer: nic, link,
    sound, or open.
""")
"""Health of jobs and nodes, published together by the leader."""

SANDBOXES = described("""
gauge tonnage_sandboxes{policy, state}
    Running pods that a SandboxPolicy covers, by state: controlled, uncontrolled.
gauge tonnage_sandbox_calls{policy, state}
    Tool calls by state: running, queued, frozen.
gauge tonnage_sandbox_memory_bytes{policy, kind}
    Memory held by agents' own processes (agents) and leased to tool calls (calls).
gauge tonnage_sandbox_nodes{level}
    Nodes by level of isolation: full, observe, none.
gauge tonnage_sandbox_node_bytes{kind}
    Memory of all nodes for sandboxes: budget, and the part that is reserved.
""")

SANDBOX_COUNTS = described("""
counter tonnage_sandbox_happenings_total{policy, what, reason}
    What happened to tool calls (ToolCallKilled, Frozen, Refused) and agents (AgentKilled), by reason.
""")

METRICS = (
    *(FLEET + SERVICES + AUTOSCALER + LOOP + PROCESS + BACKGROUND),
    *(POWER + POWER_LOOP + SCALING + DEMAND + HEALTH + SANDBOXES + SANDBOX_COUNTS),
)


def reference() -> str:
    """Table of all metrics as Markdown, for docs/operations.md."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201 - for docs/operations.md
