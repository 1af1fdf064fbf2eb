"""Dashboard of Tonnage's requests to the Kubernetes API server."""

from deploy.dashboards.panels import JOB, PER_SECOND, SECONDS, SHARE, Board, Panel, Query, Row, quantile, rate

FAILED = 'code=~"5..|429|none"'

API = Board(
    "api",
    "Tonnage / API traffic",
    "Requests of Tonnage to the Kubernetes API server, and their results. An idle loop writes nothing.",
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
                    "Writes by resource",
                    "Events of pods that wait and of objects that are refused are at most 50 a minute.",
                    PER_SECOND,
                    (Query(rate("tonnage_api_writes_total", "resource", "verb"), "{{verb}} {{resource}}"),),
                ),
                Panel(
                    "Answers by code",
                    "409: another client wrote first. 429: the server throttles. none: no answer.",
                    PER_SECOND,
                    (Query(rate("tonnage_api_requests_total", "code"), "{{code}}"),),
                ),
                Panel(
                    "Failed fraction",
                    "Server errors, throttled or unanswered requests.",
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
                    "Writes that the API server refused because another replica leads. Rare, and no work is lost.",
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
