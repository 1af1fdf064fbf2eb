"""Every metric that Tonnage exposes, in one table: name, kind, meaning, labels. Nothing else may be exposed."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

CYCLE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Goals lie at 0.5 s (median) and 2 s (99 %); the widest is past any deadline of planning."""
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
"""An unloaded API server answers in 1 to 20 ms; 30 s is where a request is given up."""
WAIT_BUCKETS_S = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""From within one cycle to a day: a full fleet makes pods wait for others to end."""
REACTION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""The goal is 0.5 s for 99 %."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as Prometheus knows it."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper edges; only of a histogram."""


FLEET = (
    Metric(
        "tonnage_gpus",
        "gauge",
        "Devices by what they do. Allocated: held by pods. Stranded: idle, and the pods that usually come could not "
        "use it (expected value). Free: idle and usable. Closed: idle on cordoned or unready nodes. Adds up to all.",
        ("gpu_type", "state"),
    ),
    Metric(
        "tonnage_fleet_cost_dollars_per_hour",
        "gauge",
        "Price of the devices by what they do, US dollars for one hour at the price of their GPUType.",
        ("gpu_type", "state"),
    ),
    Metric("tonnage_nodes", "gauge", "Nodes: open to new pods, or closed (cordoned, not ready).", ("state",)),
    Metric("tonnage_pods", "gauge", "Pods: running (holding resources) or pending.", ("state",)),
    Metric("tonnage_gangs", "gauge", "Gangs: running (enough members), pending, or without pods.", ("state",)),
    Metric(
        "tonnage_oldest_pending_seconds",
        "gauge",
        "How long the longest waiting pod or gang has been pending since this leader first saw it; 0 when none waits.",
        ("kind",),
    ),
    Metric("tonnage_unplaced", "gauge", "Pods and gangs that the last plan found no place for.", ("reason",)),
    Metric("tonnage_findings", "gauge", "Verdicts and forecasts of the last plan.", ("reason",)),
    Metric("tonnage_observed_timestamp_seconds", "gauge", "When each part of the cluster was last seen.", ("part",)),
)

BATCH = (
    Metric(
        "tonnage_batch_cost_dollars_per_hour",
        "gauge",
        "What the last batch costs: idle nodes that it starts, and what it leaves out at its price. Only of the "
        "planner `columns`, by the highest rung of its ladder.",
        ("rung",),
    ),
    Metric(
        "tonnage_batch_cost_bound_dollars_per_hour",
        "gauge",
        "No plan for that batch could cost less: proven, not estimated.",
        ("rung",),
    ),
    Metric(
        "tonnage_batch_cost_gap_ratio",
        "gauge",
        "Share of that cost that is not proven to be needed; 0: proven cheapest.",
        ("rung",),
    ),
)

SERVICES = (
    Metric(
        "tonnage_service_cost_dollars_per_hour",
        "gauge",
        "Cost of a service's planned mix, US dollars for one hour.",
        ("model_service",),
    ),
    Metric(
        "tonnage_service_cost_bound_dollars_per_hour",
        "gauge",
        "No mix that serves the service can cost less than this: the solver's proof.",
        ("model_service",),
    ),
    Metric(
        "tonnage_service_cost_gap_ratio",
        "gauge",
        "Share of the cost that is not proven to be needed; 0: proven cheapest.",
        ("model_service",),
    ),
    Metric(
        "tonnage_service_instances",
        "gauge",
        "Instances of a service by GPU type: wanted by the plan, or running.",
        ("model_service", "gpu_type", "state"),
    ),
    Metric(
        "tonnage_service_unplanned",
        "gauge",
        "1 for a service that the last plan has no mix for, with why; its instances stay as they are.",
        ("model_service", "reason"),
    ),
)

LOOP = (
    Metric(
        "tonnage_cycles_total",
        "counter",
        "Cycles of the loop: acted, quiet (nothing to do), blind (the cluster could not be seen), failed.",
        ("result",),
    ),
    Metric("tonnage_cycle_seconds", "histogram", "Length of one whole cycle.", (), CYCLE_BUCKETS_S),
    Metric("tonnage_cycle_stage_seconds", "histogram", "Length of each stage of a cycle.", ("stage",), CYCLE_BUCKETS_S),
    Metric(
        "tonnage_last_cycle_timestamp_seconds",
        "gauge",
        "When the last cycle ended that saw the cluster, or when this replica took the lead; 0: it never led.",
    ),
    Metric(
        "tonnage_actions_total",
        "counter",
        "Actions by what became of them. Done; failed in the cluster; skipped after a failure; stuck: was to take "
        "back what stands half done, and failed.",
        ("action", "result"),
    ),
    Metric("tonnage_guard_refusals_total", "counter", "Actions that the guard struck out of plans.", ("reason",)),
    Metric(
        "tonnage_plans_out_of_time_total",
        "counter",
        "Plans of which time cut something off, by what: the machine was too slow or too busy for the work.",
        ("reason",),
    ),
    Metric(
        "tonnage_pod_wait_seconds",
        "histogram",
        "From when this leader first saw a pod pending until it was placed.",
        (),
        WAIT_BUCKETS_S,
    ),
)

PROCESS = (
    Metric("tonnage_leader", "gauge", "1 in the replica that holds the Lease and writes, else 0."),
    Metric("tonnage_lease_epoch", "gauge", "How often the Lease has changed hands; every write carries it."),
    Metric(
        "tonnage_fenced_writes_total",
        "counter",
        "Writes that the API server refused because another replica leads by now.",
    ),
    Metric("tonnage_api_requests_total", "counter", "Requests to the Kubernetes API.", ("verb", "code")),
    Metric(
        "tonnage_api_request_seconds",
        "histogram",
        "Time until a request was answered; not for watches, which stay open.",
        ("verb",),
        REQUEST_BUCKETS_S,
    ),
    Metric("tonnage_build_info", "gauge", "Always 1, with the version that runs.", ("version",)),
)

BRAIN = (
    Metric("tonnage_brain_up", "gauge", "1 while the brain on Ray is up and trusted; 0 also where none is wanted."),
    Metric("tonnage_brain_plans_total", "counter", "Plans by who made them: ray, or local, in this process.", ("by",)),
    Metric(
        "tonnage_brain_fallbacks_total",
        "counter",
        "Plans made locally, by why: away, starting, deadline, distrusted (too many were late), lost, busy, ...",
        ("reason",),
    ),
    Metric("tonnage_brain_restarts_total", "counter", "Brains given up, by why; a new one is started.", ("reason",)),
    Metric("tonnage_brain_late_answers_total", "counter", "Answers that came too late and were dropped."),
    Metric("tonnage_brain_planners", "gauge", "Planners on Ray that answer."),
    Metric("tonnage_brain_planner_restarts", "gauge", "Planners that were started anew since the brain is up."),
    Metric("tonnage_brain_handover_seconds", "gauge", "To turn the last snapshot into a frame for the brain."),
    Metric(
        "tonnage_brain_slot_up",
        "gauge",
        "1 while the actor of a slot answers on Ray; slots think beside plans.",
        ("slot",),
    ),
    Metric(
        "tonnage_brain_slot_thoughts_total",
        "counter",
        "Thoughts of a slot by who had them: ray, or local, in this process.",
        ("slot", "by"),
    ),
    Metric(
        "tonnage_brain_slot_failures_total",
        "counter",
        "Times a slot gave no thought, by why: deadline, error, lost, silent, stuck, ...",
        ("slot", "reason"),
    ),
    Metric("tonnage_brain_slot_actions_total", "counter", "Actions of a slot that plans took up.", ("slot",)),
)

POWER = (
    Metric(
        "tonnage_power_draw_watts",
        "gauge",
        "What is drawn through a PowerDomain now: readings, the worst case of stale devices, and otherWatts.",
        ("power_domain",),
    ),
    Metric(
        "tonnage_power_worst_watts",
        "gauge",
        "What could be drawn through it at worst by all that was granted and may still be held.",
        ("power_domain",),
    ),
    Metric(
        "tonnage_power_headroom_watts",
        "gauge",
        "What more work may begin to draw in it: the budget less the draw and its measured spike. Below 0: short.",
        ("power_domain",),
    ),
    Metric("tonnage_power_budget_watts", "gauge", "The budget that is kept.", ("power_domain",)),
    Metric(
        "tonnage_power_brake",
        "gauge",
        "1 while a hardware brake is taken to hold clocks down: the draw was near the budget, most now draw far less.",
        ("power_domain",),
    ),
    Metric(
        "tonnage_power_devices",
        "gauge",
        "Devices by how they fare: free (as they wish), held_back, stale (not heard), disobedient. Adds up to all.",
        ("power_domain", "state"),
    ),
    Metric(
        "tonnage_power_short_watts",
        "gauge",
        "Watts that devices of a class need and do not get.",
        ("power_domain", "power_class"),
    ),
)

POWER_LOOP = (
    Metric("tonnage_power_agents", "gauge", "Agents whose line is up."),
    Metric("tonnage_power_reports_total", "counter", "Reports of agents that count."),
    Metric("tonnage_power_leases_total", "counter", "Leases sent to agents."),
    Metric("tonnage_power_messages_refused_total", "counter", "Messages of agents that do not count.", ("reason",)),
    Metric("tonnage_power_failed_turns_total", "counter", "Turns of the power loop that a mistake of ours ended."),
    Metric(
        "tonnage_power_reaction_seconds",
        "histogram",
        "From hearing a report to having sent the lease that answers it.",
        (),
        REACTION_BUCKETS_S,
    ),
    Metric("tonnage_power_turn_seconds", "gauge", "How long the last turn of the power loop took."),
    Metric(
        "tonnage_power_last_turn_timestamp_seconds",
        "gauge",
        "When the power loop last turned; 0 where it does not lead, or power is not enabled.",
    ),
)

METRICS = FLEET + BATCH + SERVICES + LOOP + PROCESS + BRAIN + POWER + POWER_LOOP


def reference() -> str:
    """The table for people, in Markdown."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201 - for docs/operations.md
