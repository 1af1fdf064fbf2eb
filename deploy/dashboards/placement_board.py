"""What waits, why, and what was done about it."""

from deploy.dashboards.panels import COUNT, JOB, PER_SECOND, SECONDS, Board, Panel, Query, Row, fleet, quantiles, rate

PLACEMENT = Board(
    "placement",
    "Tonnage / Placement",
    "What waits, for how long and why; what was done about it, and what was refused.",
    (JOB,),
    (
        Row(
            "Waiting",
            (
                Panel("Pods", "Pods by state.", COUNT, (Query(fleet("tonnage_pods", "state"), "{{state}}"),)),
                Panel("Gangs", "Gangs by state.", COUNT, (Query(fleet("tonnage_gangs", "state"), "{{state}}"),)),
                Panel(
                    "Longest wait",
                    "Since the leader first saw the workload pending; starts again with a new leader.",
                    SECONDS,
                    (Query(fleet("tonnage_oldest_pending_seconds", "kind"), "{{kind}}"),),
                ),
                Panel(
                    "Unplaced by reason",
                    "What the last plan found no place for. `tonnage explain` says what was short where.",
                    COUNT,
                    (Query(fleet("tonnage_unplaced", "reason"), "{{reason}}"),),
                    stacked=True,
                ),
                Panel(
                    "Wait until placed",
                    "Of the pods that were placed meanwhile.",
                    SECONDS,
                    quantiles("tonnage_pod_wait_seconds"),
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
                    "By kind and what became of them. Stuck: what stands half done was not taken back; see the log.",
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
