"""What the fleet costs, what of it works, and what each model service costs."""

from deploy.dashboards.panels import (
    COUNT,
    DOLLARS_PER_HOUR,
    GPU_TYPE,
    JOB,
    SERVICE,
    SHARE,
    Board,
    Panel,
    Query,
    Row,
    fleet,
)

GPUS = fleet("tonnage_gpus", "gpu_type", "state", where='gpu_type=~"$gpu_type"')
COST = fleet("tonnage_fleet_cost_dollars_per_hour", "gpu_type", "state", where='gpu_type=~"$gpu_type"')
ALLOCATED = fleet("tonnage_gpus", "gpu_type", where='gpu_type=~"$gpu_type", state="allocated"')
STRANDED = fleet("tonnage_gpus", "gpu_type", where='gpu_type=~"$gpu_type", state="stranded"')
OF_SERVICE = 'model_service=~"$model_service"'

INSTANCES = fleet("tonnage_service_instances", "model_service", "gpu_type", "state", where=OF_SERVICE)
ALLOCATED_ONLY = 'state="allocated"'

FLEET = Board(
    "fleet",
    "Tonnage / Fleet cost and allocation",
    "What the fleet costs, what of it works, and what each model service costs beside what is proven to be needed.",
    (JOB, GPU_TYPE, SERVICE),
    (
        Row(
            "Money",
            (
                Panel(
                    "Fleet cost per hour",
                    "Price of all devices, dollars per hour.",
                    DOLLARS_PER_HOUR,
                    (Query(f"sum({COST})", "fleet"),),
                    "stat",
                ),
                Panel(
                    "Cost that works",
                    "Share of the fleet's price that pods hold.",
                    SHARE,
                    (
                        Query(
                            f"sum({fleet('tonnage_fleet_cost_dollars_per_hour', 'gpu_type', where=ALLOCATED_ONLY)})"
                            f" / sum({fleet('tonnage_fleet_cost_dollars_per_hour', 'gpu_type', 'state')})",
                            "allocated",
                        ),
                    ),
                    "stat",
                ),
                Panel(
                    "Cost per hour by state",
                    "Stranded: money for devices that the usual pods cannot use, for their node lacks CPU or has only "
                    "splinters left. Closed: money behind cordons.",
                    DOLLARS_PER_HOUR,
                    (Query(f"sum by (state) ({COST})", "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    "Cost per hour by GPU type",
                    "Where the money stands.",
                    DOLLARS_PER_HOUR,
                    (Query(f"sum by (gpu_type) ({COST})", "{{gpu_type}}"),),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Devices",
            (
                Panel(
                    "Devices by state",
                    "Adds up to all devices of the chosen types.",
                    COUNT,
                    (Query(f"sum by (state) ({GPUS})", "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    "Allocation by GPU type",
                    "Share of each type that pods hold.",
                    SHARE,
                    (Query(f"sum by (gpu_type) ({ALLOCATED}) / sum by (gpu_type) ({GPUS})", "{{gpu_type}}"),),
                ),
                Panel(
                    "Stranded by GPU type",
                    "Share of each type that is idle and of no use to the usual pods. Rising: ask `tonnage explain` "
                    "about a pending pod, and look at CPU per GPU of the nodes.",
                    SHARE,
                    (Query(f"sum by (gpu_type) ({STRANDED}) / sum by (gpu_type) ({GPUS})", "{{gpu_type}}"),),
                ),
            ),
        ),
        Row(
            "Batches",
            (
                Panel(
                    "Cost of the last batch per hour",
                    "Idle nodes that it starts and pods that it leaves out, and what no plan for it could cost less "
                    "than. Only where the planner is `columns`.",
                    DOLLARS_PER_HOUR,
                    (
                        Query(f"sum({fleet('tonnage_batch_cost_dollars_per_hour', 'rung')})", "cost"),
                        Query(f"sum({fleet('tonnage_batch_cost_bound_dollars_per_hour', 'rung')})", "proven"),
                    ),
                ),
                Panel(
                    "Gap of the last batch",
                    "Share of its cost that is not proven to be needed, by the highest rung of the planners' ladder. "
                    "Large with a low rung: give planning more time.",
                    SHARE,
                    (Query(fleet("tonnage_batch_cost_gap_ratio", "rung"), "{{rung}}"),),
                ),
            ),
        ),
        Row(
            "Model services",
            (
                Panel(
                    "Cost of services per hour",
                    "What the planned mix of each service costs, dollars per hour.",
                    DOLLARS_PER_HOUR,
                    (
                        Query(
                            fleet("tonnage_service_cost_dollars_per_hour", "model_service", where=OF_SERVICE),
                            "{{model_service}}",
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Proven part of that cost",
                    "No mix can be cheaper than this bound; where it meets the cost, the mix is proven cheapest.",
                    DOLLARS_PER_HOUR,
                    (
                        Query(
                            fleet("tonnage_service_cost_bound_dollars_per_hour", "model_service", where=OF_SERVICE),
                            "{{model_service}}",
                        ),
                    ),
                ),
                Panel(
                    "Gap of the mixes",
                    "Share of the cost that is not proven to be needed. Large for long: give planning more time.",
                    SHARE,
                    (
                        Query(
                            fleet("tonnage_service_cost_gap_ratio", "model_service", where=OF_SERVICE),
                            "{{model_service}}",
                        ),
                    ),
                ),
                Panel(
                    "Instances wanted and running",
                    "Apart for long: the fleet has no room, see the placement dashboard.",
                    COUNT,
                    (
                        Query(
                            f"sum by (model_service, state) ({INSTANCES})",
                            "{{model_service}} {{state}}",
                        ),
                    ),
                ),
                Panel(
                    "Services without a mix",
                    "The last plan found none, for the reason in the legend; their instances stay as they are.",
                    COUNT,
                    (
                        Query(
                            f"sum by (reason) ({fleet('tonnage_service_unplanned', 'model_service', 'reason')})",
                            "{{reason}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
