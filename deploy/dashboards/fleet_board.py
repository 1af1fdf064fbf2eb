"""Dashboard of the fleet: cost, allocation, and cost of each model service."""

from deploy.dashboards.panels import (
    COUNT,
    DOLLARS_PER_HOUR,
    GAP,
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

OF_TYPE = 'gpu_type=~"$gpu_type"'
GPUS = fleet("tonnage_gpus", "gpu_type", "state", where='gpu_type=~"$gpu_type"')
COST = fleet("tonnage_fleet_cost_dollars_per_hour", "gpu_type", "state", where='gpu_type=~"$gpu_type"')
ALLOCATED = fleet("tonnage_gpus", "gpu_type", where='gpu_type=~"$gpu_type", state="allocated"')
STRANDED = fleet("tonnage_gpus", "gpu_type", where='gpu_type=~"$gpu_type", state="stranded"')
OF_SERVICE = 'model_service=~"$model_service"'

INSTANCES = fleet("tonnage_service_instances", "model_service", "instance_type", "state", where=OF_SERVICE)


def of_state(state: str) -> str:
    """Instances of the chosen services in a state."""
    where = f'{OF_SERVICE}, state="{state}"'
    return fleet("tonnage_service_instances", "model_service", "instance_type", where=where)


ALLOCATED_COST = fleet("tonnage_fleet_cost_dollars_per_hour", "gpu_type", where=f'{OF_TYPE}, state="allocated"')

FLEET = Board(
    "fleet",
    "Tonnage / Fleet cost and allocation",
    "Cost and allocation of the fleet, and the cost of each model service beside its proven lower bound.",
    (JOB, GPU_TYPE, SERVICE),
    (
        Row(
            "Money",
            (
                Panel(
                    "Fleet cost per hour",
                    "Cost of all devices, US dollars per hour.",
                    DOLLARS_PER_HOUR,
                    (Query(f"sum({COST})", "fleet"),),
                    "stat",
                ),
                Panel(
                    "Allocated fraction of the cost",
                    "Cost of the devices that pods hold, as a fraction of the fleet's cost.",
                    SHARE,
                    (
                        Query(
                            f"sum({ALLOCATED_COST}) / sum({COST})",
                            "allocated",
                        ),
                    ),
                    "stat",
                ),
                Panel(
                    "Cost per hour by state",
                    "Stranded: idle devices that typical pods cannot use, because their node lacks CPU or has only "
                    "fragments left. Closed: idle devices on unschedulable nodes.",
                    DOLLARS_PER_HOUR,
                    (Query(f"sum by (state) ({COST})", "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    "Cost per hour by GPU type",
                    "Cost of all devices of each type.",
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
                    "The sum is all devices of the chosen types.",
                    COUNT,
                    (Query(f"sum by (state) ({GPUS})", "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    "Allocation by GPU type",
                    "Fraction of each type that pods hold.",
                    SHARE,
                    (Query(f"sum by (gpu_type) ({ALLOCATED}) / sum by (gpu_type) ({GPUS})", "{{gpu_type}}"),),
                ),
                Panel(
                    "Stranded by GPU type",
                    "Fraction of each type that is idle and unusable for typical pods. Rising: run `tonnage explain` "
                    "for a pending pod, and look at CPU per GPU of the nodes.",
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
                    "Cost of the idle nodes that it uses, and the proven lower bound for plans that leave out no more "
                    "pods. Only with the planner `columns`.",
                    DOLLARS_PER_HOUR,
                    (
                        Query(f"sum({fleet('tonnage_batch_cost_dollars_per_hour', 'rung')})", "cost"),
                        Query(f"sum({fleet('tonnage_batch_cost_bound_dollars_per_hour', 'rung')})", "proven"),
                    ),
                ),
                Panel(
                    "Gap of the last batch",
                    "Fraction of its cost above the proven lower bound, by the highest stage of the solver ladder that "
                    "ran. Large at a low stage: give planning more time.",
                    SHARE,
                    (Query(fleet("tonnage_batch_cost_gap_ratio", "rung"), "{{rung}}"),),
                    steps=GAP,
                ),
                Panel(
                    "Pods left out of the last batch",
                    "Short: resources are short beside the other pods. Impossible: no plan could start them beside "
                    "what runs; they are no part of the cost.",
                    COUNT,
                    (Query(fleet("tonnage_batch_left_out_pods", "reason"), "{{reason}}"),),
                ),
            ),
        ),
        Row(
            "Model services",
            (
                Panel(
                    "Services now",
                    "One row a service: instances wanted and running, cost, proven lower bound, and the gap.",
                    COUNT,
                    (
                        Query(f"sum by (model_service) ({of_state('wanted')})", "wanted"),
                        Query(f"sum by (model_service) ({of_state('running')})", "running"),
                        Query(
                            fleet("tonnage_service_cost_dollars_per_hour", "model_service", where=OF_SERVICE),
                            "$ per hour",
                            DOLLARS_PER_HOUR,
                        ),
                        Query(
                            fleet("tonnage_service_cost_bound_dollars_per_hour", "model_service", where=OF_SERVICE),
                            "bound",
                            DOLLARS_PER_HOUR,
                        ),
                        Query(fleet("tonnage_service_cost_gap_ratio", "model_service", where=OF_SERVICE), "gap", SHARE),
                    ),
                    "table",
                ),
                Panel(
                    "Cost of services per hour",
                    "Cost of the planned GPU mix of each service, US dollars per hour.",
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
                    "Proven lower bound of that cost",
                    "No GPU mix can be cheaper; where the bound equals the cost, the mix is proven cheapest.",
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
                    "Fraction of the cost above the proven lower bound. Large for long: give planning more time.",
                    SHARE,
                    (
                        Query(
                            fleet("tonnage_service_cost_gap_ratio", "model_service", where=OF_SERVICE),
                            "{{model_service}}",
                        ),
                    ),
                    steps=GAP,
                ),
                Panel(
                    "Instances wanted and running",
                    "Different for long: the fleet has no room, see the placement dashboard.",
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
                    "The last plan found none, for the reason in the legend; their instances stay unchanged.",
                    COUNT,
                    (
                        Query(
                            fleet("tonnage_service_unplanned", "model_service", "reason", where=OF_SERVICE),
                            "{{model_service}}: {{reason}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
