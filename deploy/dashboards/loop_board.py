"""Whether somebody leads, sees, and is quick enough."""

from deploy.dashboards.panels import (
    COUNT,
    JOB,
    PER_SECOND,
    SECONDS,
    Board,
    Panel,
    Query,
    Row,
    fleet,
    quantile,
    quantiles,
    rate,
)

LOOP = Board(
    "loop",
    "Tonnage / Control loop",
    "Whether somebody leads, sees, and is quick enough.",
    (JOB,),
    (
        Row(
            "State",
            (
                Panel(
                    "Leaders",
                    "Exactly one, but for seconds around a change.",
                    COUNT,
                    (Query('sum(tonnage_leader{job="$job"})', "leaders"),),
                    "stat",
                ),
                Panel(
                    "Epoch",
                    "How often the Lease has changed hands. Rising on its own: the leader misses renewals.",
                    COUNT,
                    (Query('max(tonnage_lease_epoch{job="$job"})', "epoch"),),
                    "stat",
                ),
                Panel(
                    "Since the last cycle",
                    "A quiet cluster has a cycle every resync_s (30 s).",
                    SECONDS,
                    (Query('time() - max(tonnage_last_cycle_timestamp_seconds{job="$job"})', "age"),),
                    "stat",
                ),
                Panel(
                    "Version",
                    "What runs; two values while it is rolled out.",
                    COUNT,
                    (Query('count by (version) (tonnage_build_info{job="$job"})', "{{version}}"),),
                    "stat",
                ),
            ),
        ),
        Row(
            "Cycles",
            (
                Panel(
                    "Cycles by result",
                    "Blind: the cluster could not be seen. Failed: a mistake of Tonnage, with a traceback in the log.",
                    PER_SECOND,
                    (Query(rate("tonnage_cycles_total", "result"), "{{result}}"),),
                ),
                Panel(
                    "Length of a cycle",
                    "Goals: median 0.5 s, 99 % within 2 s.",
                    SECONDS,
                    quantiles("tonnage_cycle_seconds"),
                ),
                Panel(
                    "Length of each stage, 99 %",
                    "Which stage a slow cycle spends its time in.",
                    SECONDS,
                    (Query(quantile(0.99, "tonnage_cycle_stage_seconds", "stage"), "{{stage}}"),),
                ),
                Panel(
                    "Age of what is seen",
                    "By part of the cluster. Past limits.max_age_s (three minutes) the guard refuses to act on it.",
                    SECONDS,
                    (Query(f"time() - {fleet('tonnage_observed_timestamp_seconds', 'part')}", "{{part}}"),),
                ),
            ),
        ),
        Row(
            "Brain",
            (
                Panel(
                    "Brain on Ray",
                    "1: up and trusted. 0 also where the controller plans by itself (settings brain.mode).",
                    COUNT,
                    (
                        Query(f"{fleet('tonnage_brain_up')}", "up"),
                        Query(f"{fleet('tonnage_brain_planners')}", "planners"),
                    ),
                ),
                Panel(
                    "Plans by who made them",
                    "local: by the heuristic in the controller, while the brain is away or late.",
                    PER_SECOND,
                    (
                        Query(rate("tonnage_brain_plans_total", "by"), "{{by}}"),
                        Query(rate("tonnage_brain_late_answers_total"), "came too late"),
                    ),
                ),
                Panel(
                    "Why plans were made locally",
                    "deadline: the brain was not done in time. distrusted: that happened too often.",
                    PER_SECOND,
                    (Query(rate("tonnage_brain_fallbacks_total", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Brains and planners started anew",
                    "By why a brain was given up.",
                    PER_SECOND,
                    (
                        Query(rate("tonnage_brain_restarts_total", "reason"), "{{reason}}"),
                        Query(f"{fleet('tonnage_brain_planner_restarts')}", "planners, since the brain is up"),
                    ),
                ),
                Panel(
                    "Time to a plan",
                    "From the snapshot to its plan, and the part of it that the hand-over takes.",
                    SECONDS,
                    (
                        Query(quantile(0.99, "tonnage_cycle_stage_seconds", "stage", where='stage="plan"'), "99 %"),
                        Query(f"{fleet('tonnage_brain_handover_seconds')}", "hand-over"),
                    ),
                ),
                Panel(
                    "Slots",
                    "1: the actor of a slot answers; slots think beside plans. 0 also where a slot is not in use.",
                    COUNT,
                    (Query(f"{fleet('tonnage_brain_slot_up', 'slot')}", "{{slot}}"),),
                ),
                Panel(
                    "Thoughts beside plans",
                    "By slot and by who had them, why a slot gave none, and actions that plans took up.",
                    PER_SECOND,
                    (
                        Query(rate("tonnage_brain_slot_thoughts_total", "slot", "by"), "{{slot}}, {{by}}"),
                        Query(
                            rate("tonnage_brain_slot_failures_total", "slot", "reason"), "{{slot}}, none: {{reason}}"
                        ),
                        Query(rate("tonnage_brain_slot_actions_total", "slot"), "{{slot}}, actions"),
                    ),
                ),
            ),
        ),
        Row(
            "Process",
            (
                Panel(
                    "Memory",
                    "Resident memory by replica.",
                    "bytes",
                    (Query('process_resident_memory_bytes{job="$job"}', "{{instance}}"),),
                ),
                Panel(
                    "CPU",
                    "Cores in use by replica.",
                    COUNT,
                    (Query('rate(process_cpu_seconds_total{job="$job"}[$__rate_interval])', "{{instance}}"),),
                ),
            ),
        ),
    ),
)
