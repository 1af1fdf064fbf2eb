"""Dashboard of the control loop: leader, age of the observed cluster, durations of cycles, brain."""

from deploy.dashboards.panels import (
    COUNT,
    JOB,
    ONE,
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
    "Whether a replica leads, observes the cluster, and is fast enough.",
    (JOB,),
    (
        Row(
            "State",
            (
                Panel(
                    "Leaders",
                    "Exactly one, except for seconds around a change of leader.",
                    COUNT,
                    (Query('sum(tonnage_leader{job="$job"})', "leaders"),),
                    "stat",
                    steps=ONE,
                ),
                Panel(
                    "Epoch",
                    "Number of changes of the leader. Rising without a rollout: the leader misses renewals.",
                    COUNT,
                    (Query('max(tonnage_lease_epoch{job="$job"})', "epoch"),),
                    "stat",
                ),
                Panel(
                    "Since the last cycle",
                    "In an idle cluster there is a cycle every resync_s (30 s).",
                    SECONDS,
                    (Query('time() - max(tonnage_last_cycle_timestamp_seconds{job="$job"})', "age"),),
                    "stat",
                    steps=((None, "green"), (60.0, "orange"), (120.0, "red")),
                ),
                Panel(
                    "Version",
                    "Running versions; two during a rollout.",
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
                    "Blind: the cluster could not be observed. Failed: a bug of Tonnage, with a traceback in the log. "
                    "A decider that failed is left out of the plan.",
                    PER_SECOND,
                    (
                        Query(rate("tonnage_cycles_total", "result"), "{{result}}"),
                        Query(rate("tonnage_decider_failures_total", "decider"), "without {{decider}}"),
                    ),
                ),
                Panel(
                    "Duration of a cycle",
                    "Goals: median 0.5 s, 99 % within 2 s.",
                    SECONDS,
                    quantiles("tonnage_cycle_seconds"),
                ),
                Panel(
                    "Duration of each stage, 99 %",
                    "The stage in which slow cycles spend their time.",
                    SECONDS,
                    (Query(quantile(0.99, "tonnage_cycle_stage_seconds", "stage"), "{{stage}}"),),
                ),
                Panel(
                    "Plans cut short by the deadline",
                    "By what was cut: the machine is too slow or too busy for the work of plan_deadline_s.",
                    PER_SECOND,
                    (Query(rate("tonnage_plans_out_of_time_total", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Age of the observed cluster",
                    "By part of the cluster. Beyond limits.max_age_s (three minutes) the guard refuses to act.",
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
                    "1: the planner process is up and its circuit breaker closed. 0 also without a brain (brain.mode).",
                    COUNT,
                    (
                        Query(f"{fleet('tonnage_brain_up')}", "up"),
                        Query(f"{fleet('tonnage_brain_planners')}", "planners"),
                    ),
                ),
                Panel(
                    "Plans by planner",
                    "local: by the heuristic in the controller, while the brain is unavailable or late.",
                    PER_SECOND,
                    (
                        Query(rate("tonnage_brain_plans_total", "by"), "{{by}}"),
                        Query(rate("tonnage_brain_late_answers_total"), "came too late"),
                    ),
                ),
                Panel(
                    "Local plans by reason",
                    "deadline: the brain missed the deadline. distrusted: it missed the deadline too often.",
                    PER_SECOND,
                    (Query(rate("tonnage_brain_fallbacks_total", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Restarts of the brain and its planners",
                    "By the reason for which the brain was replaced.",
                    PER_SECOND,
                    (
                        Query(rate("tonnage_brain_restarts_total", "reason"), "{{reason}}"),
                        Query(f"{fleet('tonnage_brain_planner_restarts')}", "planners, since the start of the brain"),
                    ),
                ),
                Panel(
                    "Time to a plan",
                    "From the snapshot to its plan, and the part of it that encoding the snapshot takes.",
                    SECONDS,
                    (
                        Query(quantile(0.99, "tonnage_cycle_stage_seconds", "stage", where='stage="plan"'), "99 %"),
                        Query(f"{fleet('tonnage_brain_handover_seconds')}", "hand-over"),
                    ),
                ),
                Panel(
                    "Slots",
                    "1: the actor of the background decider responds. 0 also where it is not in use.",
                    COUNT,
                    (Query(f"{fleet('tonnage_brain_slot_up', 'slot')}", "{{slot}}"),),
                ),
                Panel(
                    "Proposals of background deciders",
                    "By decider and planner; runs without a proposal, by reason; and actions that were added to plans.",
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
