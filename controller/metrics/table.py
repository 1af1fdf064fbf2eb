"""Table of all metrics that Tonnage exposes: name, kind, meaning, labels. No others may be exposed."""

from dataclasses import dataclass
from typing import Literal

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


FLEET = (
    Metric(
        "tonnage_gpus",
        "gauge",
        "Devices by state. Allocated: held by pods. Stranded: idle, but unusable for typical pods (expected value). "
        "Free: idle and usable. Closed: idle on unschedulable nodes (cordoned, not ready). The sum is all devices.",
        ("gpu_type", "state"),
    ),
    Metric(
        "tonnage_fleet_cost_dollars_per_hour",
        "gauge",
        "Cost of the devices by state, US dollars per hour at the price of their GPUType.",
        ("gpu_type", "state"),
    ),
    Metric("tonnage_nodes", "gauge", "Nodes by state: open (schedulable), closed (cordoned, not ready).", ("state",)),
    Metric("tonnage_pods", "gauge", "Pods by state: running (holding resources), pending.", ("state",)),
    Metric(
        "tonnage_gangs", "gauge", "Gangs by state: running (enough members), pending, empty (without pods).", ("state",)
    ),
    Metric(
        "tonnage_oldest_pending_seconds",
        "gauge",
        "Longest time that a pod or gang has been pending since this leader first observed it; 0 when none is pending.",
        ("kind",),
    ),
    Metric("tonnage_unplaced", "gauge", "Pods and gangs that the last plan could not place, by reason.", ("reason",)),
    Metric("tonnage_findings", "gauge", "Verdicts and forecasts of the last plan, by reason.", ("reason",)),
    Metric(
        "tonnage_observed_timestamp_seconds",
        "gauge",
        "Time when each part of the cluster was last observed.",
        ("part",),
    ),
)

BATCH = (
    Metric(
        "tonnage_batch_cost_dollars_per_hour",
        "gauge",
        "Cost of the idle nodes that the last batch uses. Only with the planner `columns`; rung: the highest stage of "
        "its solver ladder that ran.",
        ("rung",),
    ),
    Metric(
        "tonnage_batch_cost_bound_dollars_per_hour",
        "gauge",
        "Proven lower bound of that cost, for plans that leave out no more pods.",
        ("rung",),
    ),
    Metric(
        "tonnage_batch_cost_gap_ratio",
        "gauge",
        "Fraction of that cost above the proven lower bound; 0: proven cheapest.",
        ("rung",),
    ),
    Metric(
        "tonnage_batch_left_out_pods",
        "gauge",
        "Pods that the last batch left out. short: resources are short beside the others. impossible: no plan could "
        "start them beside what runs; they are no part of the cost.",
        ("reason",),
    ),
)

SERVICES = (
    Metric(
        "tonnage_service_cost_dollars_per_hour",
        "gauge",
        "Cost of a service's planned GPU mix, US dollars per hour.",
        ("model_service",),
    ),
    Metric(
        "tonnage_service_cost_bound_dollars_per_hour",
        "gauge",
        "Proven lower bound of the cost of any GPU mix that serves the service.",
        ("model_service",),
    ),
    Metric(
        "tonnage_service_cost_gap_ratio",
        "gauge",
        "Fraction of the cost above the proven lower bound; 0: proven cheapest.",
        ("model_service",),
    ),
    Metric(
        "tonnage_service_instances",
        "gauge",
        "Instances of a service by instance type and state: wanted (by the plan), running.",
        ("model_service", "instance_type", "state"),
    ),
    Metric(
        "tonnage_service_unplanned",
        "gauge",
        "1 for a service without a GPU mix in the last plan, by reason; its instances stay unchanged.",
        ("model_service", "reason"),
    ),
)

AUTOSCALER = (
    Metric(
        "tonnage_scaling_replicas",
        "gauge",
        "Replicas of a policy's target by state: wanted (by its spec), ready.",
        ("policy", "state"),
    ),
    Metric("tonnage_scaling_load", "gauge", "Last measured load of a policy, in its own unit.", ("policy",)),
    Metric("tonnage_scaling_capacity", "gauge", "Load that the ready replicas serve within the SLO.", ("policy",)),
    Metric(
        "tonnage_scaling_forecast",
        "gauge",
        "Forecast of the load at the median lead time, by level of probability: 0.5, 0.9, 0.99.",
        ("policy", "level"),
    ),
    Metric(
        "tonnage_scaling_lead_seconds",
        "gauge",
        "Time from the order of a replica to its readiness, by level of probability: 0.5, 0.95.",
        ("policy", "level"),
    ),
    Metric(
        "tonnage_scaling_coverage_ratio",
        "gauge",
        "Fraction of past loads inside the forecasts' interval, by its nominal percentage: 90, 99.",
        ("policy", "interval"),
    ),
    Metric(
        "tonnage_scaling_skill_ratio",
        "gauge",
        "1 - loss of a policy's forecasts / loss of naive ones; above 0: better than naive.",
        ("policy",),
    ),
    Metric(
        "tonnage_scaling_cost_dollars_per_hour",
        "gauge",
        "Expected cost of replicas: chosen, one_fewer, one_more; load expected to be missed counts as a cost.",
        ("policy", "replicas"),
    ),
    Metric("tonnage_scaling_limited", "gauge", "1 for what limited the decision.", ("policy", "limit")),
    Metric("tonnage_scaling_sample_age_seconds", "gauge", "Age of the last sample of the load.", ("policy",)),
    Metric(
        "tonnage_scaling_metrics_missing",
        "gauge",
        "1 while the load of a policy is not measured or stale, else 0; nothing is then scaled down.",
        ("policy",),
    ),
    Metric(
        "tonnage_scaling_concurrency_limit",
        "gauge",
        "Requests that one replica should serve at once (wanted), and those of the limit in force (in_force).",
        ("policy", "limit"),
    ),
    Metric(
        "tonnage_scaling_concurrency_in_flight",
        "gauge",
        "Mean requests that one replica served at once in the last interval of tuning.",
        ("policy",),
    ),
    Metric(
        "tonnage_scaling_concurrency_latency_seconds",
        "gauge",
        "95th percentile of the latency that bounds the concurrency, in the last interval of tuning.",
        ("policy",),
    ),
    Metric(
        "tonnage_scaling_conflict",
        "gauge",
        "1 while another autoscaler scales the target, else 0.",
        ("policy",),
    ),
)

LOOP = (
    Metric(
        "tonnage_cycles_total",
        "counter",
        "Cycles by result: acted, quiet (nothing to do), blind (the cluster could not be observed), failed.",
        ("result",),
    ),
    Metric("tonnage_cycle_seconds", "histogram", "Duration of a cycle.", (), CYCLE_BUCKETS_S),
    Metric("tonnage_cycle_stage_seconds", "histogram", "Duration of a stage of a cycle.", ("stage",), CYCLE_BUCKETS_S),
    Metric(
        "tonnage_last_cycle_timestamp_seconds",
        "gauge",
        "End of the last cycle that observed the cluster, or time when this replica became leader; 0: never led.",
    ),
    Metric(
        "tonnage_actions_total",
        "counter",
        "Actions by result: done; failed; skipped after a failure; stuck (the rollback of a partly placed gang or of "
        "an unbound pod failed).",
        ("action", "result"),
    ),
    Metric(
        "tonnage_guard_refusals_total", "counter", "Actions that the guard removed from plans, by reason.", ("reason",)
    ),
    Metric(
        "tonnage_decider_failures_total",
        "counter",
        "Plans that were made without a decider because it failed by a bug, by decider.",
        ("decider",),
    ),
    Metric(
        "tonnage_plans_out_of_time_total",
        "counter",
        "Plans that the deadline cut short, by what was cut: the machine was too slow or too busy.",
        ("reason",),
    ),
    Metric(
        "tonnage_pod_wait_seconds",
        "histogram",
        "Time from the first observation of a pending pod by this leader until it was placed.",
        (),
        WAIT_BUCKETS_S,
    ),
)

PROCESS = (
    Metric("tonnage_leader", "gauge", "1 in the replica that holds the Lease and writes, 0 in others."),
    Metric("tonnage_lease_epoch", "gauge", "Lease epoch: number of changes of the leader; stamped on every write."),
    Metric(
        "tonnage_fenced_writes_total",
        "counter",
        "Writes that the API server refused because another replica leads.",
    ),
    Metric("tonnage_api_requests_total", "counter", "Requests to the Kubernetes API.", ("verb", "code")),
    Metric(
        "tonnage_api_writes_total",
        "counter",
        "Writes to the Kubernetes API by resource; updates are renewals of the Lease.",
        ("resource", "verb"),
    ),
    Metric(
        "tonnage_api_request_seconds",
        "histogram",
        "Duration of requests to the Kubernetes API, without watches, which stay open.",
        ("verb",),
        REQUEST_BUCKETS_S,
    ),
    Metric("tonnage_build_info", "gauge", "Always 1, with the running version as a label.", ("version",)),
)

BRAIN = (
    Metric(
        "tonnage_brain_up",
        "gauge",
        "1 while the brain (the planner process on Ray) is up and its circuit breaker closed; 0 also without a brain.",
    ),
    Metric(
        "tonnage_brain_plans_total", "counter", "Plans by where they were made: ray, or local (this process).", ("by",)
    ),
    Metric(
        "tonnage_brain_fallbacks_total",
        "counter",
        "Plans made locally, by reason: away, starting, deadline, distrusted (too many were late, or one was unusable),"
        " infeasible (the guard refuses most of it), lost, busy, ...",
        ("reason",),
    ),
    Metric(
        "tonnage_brain_restarts_total",
        "counter",
        "Brain processes that were replaced by a new one, by reason.",
        ("reason",),
    ),
    Metric("tonnage_brain_late_answers_total", "counter", "Answers of the brain that came too late and were dropped."),
    Metric("tonnage_brain_planners", "gauge", "Planners on Ray that respond."),
    Metric("tonnage_brain_planner_restarts", "gauge", "Restarts of planners since the brain is up."),
    Metric("tonnage_brain_handover_seconds", "gauge", "Time to encode the last snapshot for the brain."),
    Metric(
        "tonnage_brain_slot_up",
        "gauge",
        "1 while the actor of a background decider responds on Ray; slot: the name of the background decider.",
        ("slot",),
    ),
    Metric(
        "tonnage_brain_slot_thoughts_total",
        "counter",
        "Proposals of a background decider by where they were made: ray, or local (this process).",
        ("slot", "by"),
    ),
    Metric(
        "tonnage_brain_slot_failures_total",
        "counter",
        "Runs of a background decider without a proposal, by reason: deadline, error, lost, silent, stuck, ...",
        ("slot", "reason"),
    ),
    Metric(
        "tonnage_brain_slot_actions_total",
        "counter",
        "Actions of a background decider that were added to plans.",
        ("slot",),
    ),
)

POWER = (
    Metric(
        "tonnage_power_draw_watts",
        "gauge",
        "Power drawn in a PowerDomain now: readings, the worst case of stale devices, and otherWatts.",
        ("power_domain",),
    ),
    Metric(
        "tonnage_power_worst_watts",
        "gauge",
        "Worst-case power of a PowerDomain: all power that was granted and may still be in force.",
        ("power_domain",),
    ),
    Metric(
        "tonnage_power_headroom_watts",
        "gauge",
        "Power that new work may use: the budget less the draw and its measured spike; negative when over the budget.",
        ("power_domain",),
    ),
    Metric("tonnage_power_budget_watts", "gauge", "Power budget in force.", ("power_domain",)),
    Metric(
        "tonnage_power_brake",
        "gauge",
        "1 while a hardware power brake is inferred: the draw was near the budget, and most devices now draw far less.",
        ("power_domain",),
    ),
    Metric(
        "tonnage_power_devices",
        "gauge",
        "Devices by state: free (not limited), held_back (limited), stale (no readings), "
        "disobedient (above their limit). The sum is all devices.",
        ("power_domain", "state"),
    ),
    Metric(
        "tonnage_power_short_watts",
        "gauge",
        "Power that devices of a class need and are not granted.",
        ("power_domain", "power_class"),
    ),
)

POWER_LOOP = (
    Metric("tonnage_power_agents", "gauge", "Node agents that are connected."),
    Metric("tonnage_power_reports_total", "counter", "Valid reports of node agents."),
    Metric("tonnage_power_leases_total", "counter", "Power leases sent to node agents."),
    Metric(
        "tonnage_power_messages_refused_total",
        "counter",
        "Messages of node agents that were refused, by reason.",
        ("reason",),
    ),
    Metric("tonnage_power_failed_turns_total", "counter", "Turns of the power loop that failed by a bug."),
    Metric(
        "tonnage_power_reaction_seconds",
        "histogram",
        "Time from the receipt of a report until the resulting lease was sent.",
        (),
        REACTION_BUCKETS_S,
    ),
    Metric("tonnage_power_turn_seconds", "gauge", "Duration of the last turn of the power loop."),
    Metric(
        "tonnage_power_last_turn_timestamp_seconds",
        "gauge",
        "End of the last turn of the power loop; 0 in a replica that does not lead, or when power is disabled.",
    ),
)

SCALING = (
    Metric(
        "tonnage_desired_replicas",
        "gauge",
        "Recommended replicas of a ScalingPolicy, as the external metric of the same name has them.",
        ("policy",),
    ),
)

DEMAND = (
    Metric(
        "tonnage_demand_readings_total",
        "counter",
        "Readings of the sources of demand, by source (prometheus, custom, push) and result: ok, or the reason why a "
        "reading failed, as in the condition MetricsAvailable.",
        ("source", "result"),
    ),
)

HEALTH = (
    Metric("tonnage_health_incidents", "gauge", "Open FaultIncidents by phase.", ("phase",)),
    Metric("tonnage_health_nodes_out", "gauge", "Nodes with a taint of ours: in quarantine, on probation.", ("state",)),
    Metric(
        "tonnage_health_waiting",
        "gauge",
        "Open FaultIncidents by what keeps them from acting: the reason of their condition Waiting; Nothing: they act.",
        ("reason",),
    ),
    Metric(
        "tonnage_health_heard_share",
        "gauge",
        "Share of the nodes under recorded jobs whose agents are heard; below a policy's heardShare nothing is begun.",
    ),
    Metric(
        "tonnage_health_verdicts",
        "gauge",
        "Verdicts on jobs since this leader began, by syndrome or cause.",
        ("verdict",),
    ),
    Metric(
        "tonnage_health_refused",
        "gauge",
        "Reports and records that were not taken since this leader began, by cause.",
        ("cause",),
    ),
    Metric(
        "tonnage_health_probes",
        "gauge",
        "Suspected faults of the network that pair probes have answered since this leader began, by answer: nic, link, "
        "sound, or open.",
        ("answer",),
    ),
)
"""Health of jobs and nodes, published together by the leader."""

SANDBOXES = (
    Metric(
        "tonnage_sandboxes",
        "gauge",
        "Running pods that a SandboxPolicy covers, by state: controlled, uncontrolled.",
        ("policy", "state"),
    ),
    Metric("tonnage_sandbox_calls", "gauge", "Tool calls by state: running, queued, frozen.", ("policy", "state")),
    Metric(
        "tonnage_sandbox_memory_bytes",
        "gauge",
        "Memory held by agents' own processes (agents) and leased to tool calls (calls).",
        ("policy", "kind"),
    ),
    Metric("tonnage_sandbox_nodes", "gauge", "Nodes by level of isolation: full, observe, none.", ("level",)),
    Metric(
        "tonnage_sandbox_node_bytes",
        "gauge",
        "Memory of all nodes for sandboxes: budget, and the part that is reserved.",
        ("kind",),
    ),
)

SANDBOX_COUNTS = (
    Metric(
        "tonnage_sandbox_happenings_total",
        "counter",
        "What happened to tool calls (ToolCallKilled, Frozen, Throttled, Refused) and agents (AgentKilled), by reason.",
        ("policy", "what", "reason"),
    ),
)

METRICS = (
    *(FLEET + BATCH + SERVICES + AUTOSCALER + LOOP + PROCESS + BRAIN),
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
