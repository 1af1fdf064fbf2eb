"""What Tonnage asks of the Kubernetes API server."""

from deploy.dashboards.panels import JOB, PER_SECOND, SECONDS, SHARE, Board, Panel, Query, Row, quantile, rate

FAILED = 'code=~"5..|429|none"'

API = Board(
    "api",
    "Tonnage / API traffic",
    "What Tonnage asks of the Kubernetes API server, and how it answers. An idle loop writes nothing.",
    (JOB,),
    (
        Row(
            "Requests",
            (
                Panel(
                    "Requests by verb",
                    "create, patch, update and delete should be 0 while nothing happens in the cluster.",
                    PER_SECOND,
                    (Query(rate("tonnage_api_requests_total", "verb"), "{{verb}}"),),
                ),
                Panel(
                    "Answers by code",
                    "409: someone else wrote first. 429: the server asks for patience. none: no answer.",
                    PER_SECOND,
                    (Query(rate("tonnage_api_requests_total", "code"), "{{code}}"),),
                ),
                Panel(
                    "Share that failed",
                    "Server errors, throttled or unanswered.",
                    SHARE,
                    (
                        Query(
                            f"{rate('tonnage_api_requests_total', where=FAILED)}"
                            f" / {rate('tonnage_api_requests_total')}",
                            "failed",
                        ),
                    ),
                ),
                Panel(
                    "Fenced writes",
                    "Writes that the API server refused because another replica leads since. Seldom, and none is lost.",
                    PER_SECOND,
                    (Query(rate("tonnage_fenced_writes_total"), "fenced"),),
                ),
                Panel(
                    "Time to answer, 99 %",
                    "By verb, without watches.",
                    SECONDS,
                    (Query(quantile(0.99, "tonnage_api_request_seconds", "verb"), "{{verb}}"),),
                ),
            ),
        ),
    ),
)
