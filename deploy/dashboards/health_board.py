"""Dashboard of health: verdicts on jobs, incidents and what they wait for, nodes that are out, and what is heard."""

from deploy.dashboards.panels import COUNT, JOB, SHARE, Board, Panel, Query, Row, fleet

HEALTH = Board(
    "health",
    "Tonnage / health",
    "Faults of jobs and nodes: verdicts, incidents by phase, nodes taken out, and how much of the fleet is heard.",
    (JOB,),
    (
        Row(
            "Incidents",
            (
                Panel(
                    "Open incidents",
                    "By phase. Paged: a person is asked, and nothing more is done (`tonnage health explain`).",
                    COUNT,
                    (Query(fleet("tonnage_health_incidents", "phase"), "{{phase}}"),),
                    stacked=True,
                ),
                Panel(
                    "What keeps incidents from acting",
                    "A budget, a breaker, another owner of the node, or a PodDisruptionBudget that allows nothing "
                    "(DrainBlocked).",
                    COUNT,
                    (Query(fleet("tonnage_health_waiting", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Nodes taken out",
                    "Nodes with a taint of Tonnage: in quarantine, or on probation.",
                    COUNT,
                    (Query(fleet("tonnage_health_nodes_out", "state"), "{{state}}"),),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Analysis",
            (
                Panel(
                    "Verdicts",
                    "Since this leader began, by syndrome, or by the cause that is no fault.",
                    COUNT,
                    (Query(fleet("tonnage_health_verdicts", "verdict"), "{{verdict}}"),),
                ),
                Panel(
                    "Pair probes",
                    "Suspected faults of the network that agents' measurements have answered since this leader began: "
                    "a NIC, a link, a sound network, or still open.",
                    COUNT,
                    (Query(fleet("tonnage_health_probes", "answer"), "{{answer}}"),),
                ),
                Panel(
                    "Nodes that are heard",
                    "Of the nodes under recorded jobs. Below a policy's heardShare nothing new is done.",
                    SHARE,
                    (Query(fleet("tonnage_health_heard_share"), "heard"),),
                ),
                Panel(
                    "Reports that were not taken",
                    "Since this leader began, by cause. Replayed or unreadable: an agent with a fault, or an impostor.",
                    COUNT,
                    (Query(fleet("tonnage_health_refused", "cause"), "{{cause}}"),),
                ),
            ),
        ),
    ),
)
