"""Dashboard of scaling: load and forecast, replicas and their cost, what limits decisions, and readings of demand."""

from deploy.dashboards.panels import (
    COUNT,
    DOLLARS_PER_HOUR,
    JOB,
    PER_SECOND,
    SECONDS,
    SHARE,
    Board,
    Panel,
    Query,
    Row,
    Variable,
    fleet,
    rate,
)

POLICY = Variable("policy", "ScalingPolicy", 'label_values(tonnage_scaling_replicas{job="$job"}, policy)', many=True)
CHOSEN = 'policy=~"$policy"'
LOAD = COUNT
"""Unit of loads: the policy's own."""


def of_policy(name: str, *by: str, where: str = "") -> str:
    return fleet(f"tonnage_{name}", "policy", *by, where=f"{CHOSEN}{where}")


SCALING = Board(
    "scaling",
    "Tonnage / scaling",
    "Load of each ScalingPolicy with its forecast, replicas and their expected cost, and readings of its demand.",
    (JOB, POLICY),
    (
        Row(
            "Load",
            (
                Panel(
                    "Load and capacity",
                    "Measured load, and the load that ready replicas serve within the SLO, in the policy's own unit.",
                    LOAD,
                    (
                        Query(of_policy("scaling_load"), "{{policy}} load"),
                        Query(of_policy("scaling_capacity"), "{{policy}} capacity"),
                    ),
                ),
                Panel(
                    "Forecast",
                    "Load at the median lead time, by quantile: what a replica that is ordered now will meet.",
                    LOAD,
                    (Query(of_policy("scaling_forecast", "level"), "{{policy}} {{level}}"),),
                ),
                Panel(
                    "Coverage of the forecasts",
                    "Fraction of past loads inside the 90 % and the 99 % interval. Far below: more load is missed than "
                    "the objective asks for.",
                    SHARE,
                    (Query(of_policy("scaling_coverage_ratio", "interval"), "{{policy}} {{interval}} %"),),
                ),
                Panel(
                    "Skill",
                    "1 - loss of the forecasts / loss of naive ones. At 0 the naive forecast is in use.",
                    SHARE,
                    (Query(of_policy("scaling_skill_ratio"), "{{policy}}"),),
                ),
                Panel(
                    "Lead time",
                    "Time from the order of a replica to its readiness, as learned from observed starts.",
                    SECONDS,
                    (Query(of_policy("scaling_lead_seconds", "level"), "{{policy}} {{level}}"),),
                ),
            ),
        ),
        Row(
            "Decisions",
            (
                Panel(
                    "Desired replicas",
                    "Recommended replicas by ScalingPolicy. `tonnage scaling explain` shows the reasons.",
                    COUNT,
                    (Query(of_policy("desired_replicas"), "{{policy}}"),),
                ),
                Panel(
                    "Replicas",
                    "Replicas that the target's spec asks for, and those that are ready.",
                    COUNT,
                    (Query(of_policy("scaling_replicas", "state"), "{{policy}} {{state}}"),),
                ),
                Panel(
                    "Expected cost",
                    "Price of the chosen replicas and of one fewer and one more, with the load that each is expected "
                    "to miss.",
                    DOLLARS_PER_HOUR,
                    (Query(of_policy("scaling_cost_dollars_per_hour", "replicas"), "{{policy}} {{replicas}}"),),
                ),
                Panel(
                    "Limits",
                    "What keeps decisions from the replicas of least expected cost.",
                    COUNT,
                    (Query(of_policy("scaling_limited", "limit"), "{{policy}} {{limit}}"),),
                ),
                Panel(
                    "Concurrency",
                    "Requests that one replica should serve at once, the limit in force, and the requests that were in "
                    "flight. Far below the limit: the load does not reach it.",
                    COUNT,
                    (
                        Query(of_policy("scaling_concurrency_limit", "limit"), "{{policy}} {{limit}}"),
                        Query(of_policy("scaling_concurrency_in_flight"), "{{policy}} in flight"),
                    ),
                ),
                Panel(
                    "Latency under the limit",
                    "95th percentile of the latency that bounds the concurrency, of the last interval of tuning.",
                    SECONDS,
                    (Query(of_policy("scaling_concurrency_latency_seconds"), "{{policy}}"),),
                ),
                Panel(
                    "Conflicts",
                    "1 while another autoscaler scales the same target; then nothing is changed.",
                    COUNT,
                    (Query(of_policy("scaling_conflict"), "{{policy}}"),),
                ),
            ),
        ),
        Row(
            "Demand",
            (
                Panel(
                    "Readings by result",
                    "Anything but ok: nothing is scaled down meanwhile. The condition MetricsAvailable of each "
                    "ScalingPolicy has the words.",
                    PER_SECOND,
                    (Query(rate("tonnage_demand_readings_total", "source", "result"), "{{source}} {{result}}"),),
                ),
                Panel(
                    "Age of the last sample",
                    "Beyond maxAge the load is stale: nothing is scaled down.",
                    SECONDS,
                    (Query(of_policy("scaling_sample_age_seconds"), "{{policy}}"),),
                ),
                Panel(
                    "Loads that are missing",
                    "1 while the load of a policy is not measured, or stale.",
                    COUNT,
                    (Query(of_policy("scaling_metrics_missing"), "{{policy}}"),),
                ),
            ),
        ),
    ),
)
