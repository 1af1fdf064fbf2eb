"""Gauges of health."""

from collections import Counter
from collections.abc import Iterator, Mapping

from controller.health.incident_status import waiting_reason
from controller.health.reporter import Reported
from controller.metrics.registry import Sample
from health.remediation.incidents import Phase


def samples_of(
    reported: Reported | None, verdicts: Mapping[str, int], refused: Mapping[str, int], unread: int
) -> Iterator[Sample]:
    """Gauges of the last cycle and of the stream. unread: reports that were dropped before they were read."""
    for verdict, count in verdicts.items():
        yield Sample("tonnage_health_verdicts", (verdict,), float(count))
    for cause, count in {**refused, "not read in time": unread}.items():
        yield Sample("tonnage_health_refused", (cause,), float(count))
    if reported is None:
        return
    incidents = [incident for incident in reported.outcome.incidents if incident.is_open]
    phases = Counter(str(incident.phase) for incident in incidents)
    for phase in Phase:
        if phase is not Phase.CLOSED:
            yield Sample("tonnage_health_incidents", (str(phase),), float(phases[str(phase)]))
    for reason, count in Counter(waiting_reason(i.waits_for) for i in incidents if i.waits_for).items():
        yield Sample("tonnage_health_waiting", (reason,), float(count))
    taints = [node.taint for node in reported.situation.nodes.values() if node.taint is not None]
    on_probation = sum(taint.on_probation for taint in taints)
    yield Sample("tonnage_health_nodes_out", ("probation",), float(on_probation))
    yield Sample("tonnage_health_nodes_out", ("quarantine",), float(len(taints) - on_probation))
    yield Sample("tonnage_health_heard_share", (), reported.situation.heard_share)
