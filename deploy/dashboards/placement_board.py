"""Dashboard of placement: pending workloads with reasons, and actions with results."""

from deploy.dashboards.panels import COUNT, JOB, PER_SECOND, SECONDS, Board, Panel, Query, Row, fleet, quantiles, rate

PLACEMENT = Board(
    "placement",
    "Tonnage / Placement",
    "Pending workloads with their waits and reasons; actions that were done, failed or refused.",
    (JOB,),
    (
        Row(
            "Waiting",
            (
                Panel("Pods", "Pods by state.", COUNT, (Query(fleet("tonnage_pods", "state"), "{{state}}"),)),
                Panel("Gangs", "Gangs by state.", COUNT, (Query(fleet("tonnage_gangs", "state"), "{{state}}"),)),
                Panel(
                    "Longest wait",
                    "Since the leader first observed the workload as pending; restarts with a new leader.",
                    SECONDS,
                    (Query(fleet("tonnage_oldest_pending_seconds", "kind"), "{{kind}}"),),
                ),
                Panel(
                    "Unplaced by reason",
                    "Workloads that the last plan could not place. `tonnage explain` shows what was short.",
                    COUNT,
                    (Query(fleet("tonnage_unplaced", "reason"), "{{reason}}"),),
                    stacked=True,
                ),
                Panel(
                    "Why workloads wait now",
                    "One row a reason. `tonnage plan` names the workloads, `tonnage explain` what is short, and where.",
                    COUNT,
                    (Query(fleet("tonnage_unplaced", "reason"), "workloads"),),
                    "table",
                ),
                Panel(
                    "Wait until placed",
                    "Of the pods that were placed in the interval.",
                    SECONDS,
                    quantiles("tonnage_pod_wait_seconds"),
                ),
                Panel(
                    "Findings by reason",
                    "Verdicts and forecasts of the last plan; each stands in the condition Found of its object.",
                    COUNT,
                    (Query(fleet("tonnage_findings", "reason"), "{{reason}}"),),
                    stacked=True,
                ),
                Panel("Nodes", "Nodes by state.", COUNT, (Query(fleet("tonnage_nodes", "state"), "{{state}}"),)),
            ),
        ),
        Row(
            "Doing",
            (
                Panel(
                    "Actions done",
                    "By kind.",
                    PER_SECOND,
                    (Query(rate("tonnage_actions_total", "action", where='result="done"'), "{{action}}"),),
                ),
                Panel(
                    "Actions not done",
                    "By kind and result. Stuck: a rollback of a partly placed gang or unbound pod failed.",
                    PER_SECOND,
                    (
                        Query(
                            rate("tonnage_actions_total", "action", "result", where='result!="done"'),
                            "{{action}} {{result}}",
                        ),
                    ),
                ),
                Panel(
                    "Refused by the guard",
                    "Should be empty: a plan that the guard must stop is stale, too large or wrong; see the log.",
                    PER_SECOND,
                    (Query(rate("tonnage_guard_refusals_total", "reason"), "{{reason}}"),),
                ),
            ),
        ),
    ),
)
