"""Dashboard of scaling: recommended replicas, and the readings that they are made from."""

from deploy.dashboards.panels import COUNT, JOB, PER_SECOND, Board, Panel, Query, Row, rate

SCALING = Board(
    "scaling",
    "Tonnage / scaling",
    "Recommended replicas of each ScalingPolicy, and readings of its demand.",
    (JOB,),
    (
        Row(
            "Recommendations",
            (
                Panel(
                    "Desired replicas",
                    "Recommended replicas by ScalingPolicy. `tonnage scaling explain` shows the reasons.",
                    COUNT,
                    (Query('max by (policy) (tonnage_desired_replicas{job="$job"})', "{{policy}}"),),
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
                    (Query(rate("tonnage_demand_readings_total", "source, result"), "{{source}} {{result}}"),),
                ),
            ),
        ),
    ),
)
