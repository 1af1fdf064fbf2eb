"""Costs of the alternatives for one job, as expected GPU-hours lost."""

from dataclasses import dataclass
from math import inf

from health.remediation.facts import JobFacts, Origin, RemedyPolicy
from health.remediation.incidents import Alternative, Incident, JobDo
from health.verdicts.verdict import Part

AT_FAULT = {
    Part.NODE: 0.95,
    Part.NIC: 0.9,
    Part.RANK: 0.8,
    Part.LINK: 0.8,
    Part.GROUP: 0.1,
    Part.NOTHING: 0.05,
}
"""Probability that a named part's node is at fault and will stop the job again on restart. A dead or hanging rank:
82.5 % of crashes are local to a node (C4, HPCA'25, table I); the rest are chosen. Of a link both ends
are avoided."""
PROGRAM_AT_FAULT = 0.15
"""The same when an exception of the program came first."""
CONFIRMED = 0.97
"""The same with evidence from the node itself, or when a restart in place has not helped."""
DETECTED_S = 10.0
"""Time until a fault that a restart did not mend is seen again; hangs take 3-5 s (docs/health.md)."""


@dataclass(frozen=True, slots=True)
class SpareSeats:
    """What a restart without the suspected nodes would find."""

    pods: int
    """Pods it can restart with; 0 where these are fewer than `min_available`."""
    blocked: str = ""
    """Why the gang cannot be evicted now, such as a disruption budget."""


def at_fault(incident: Incident) -> float:
    """Probability that restarting on the same nodes fails again."""
    if incident.strikes or Origin.NODE in incident.sources or Origin.NEIGHBOUR in incident.sources:
        return CONFIRMED
    prior = PROGRAM_AT_FAULT if incident.program_error else AT_FAULT[incident.part]
    return prior * incident.confidence


def alternatives(
    incident: Incident, job: JobFacts, seats: SpareSeats, now_s: float, policy: RemedyPolicy
) -> tuple[Alternative, ...]:
    """What can be done for a job that is disturbed by an incident, cheapest first."""
    found = (
        _stopped(incident, job, seats, now_s, policy) if incident.stops else _slow(incident, job, seats, now_s, policy)
    )
    return tuple(sorted(found, key=lambda each: each.gpu_hours))


def _stopped(
    incident: Incident, job: JobFacts, seats: SpareSeats, now_s: float, policy: RemedyPolicy
) -> tuple[Alternative, ...]:
    again_s, fails = job.at_risk_s(now_s), at_fault(incident)
    smaller_s = _missing_share(job, seats) * policy.node_back_s if seats.pods else 0.0
    in_place_s = job.in_place_restart_s + again_s + fails * (DETECTED_S + _leave_s(job, seats) + smaller_s)
    tried = incident.strikes > 0 and incident.since_s - incident.closed_s < policy.restart_window_s
    note = f"{again_s:.0f} s of work again; fails again with probability {fails:.2f}"
    return (
        _evict(JobDo.EVICT_NOW, again_s + _out_s(incident, job, policy), note, job, seats, policy),
        Alternative(
            JobDo.RESTART_IN_PLACE,
            inf if tried else _hours(in_place_s, job.gpus),
            "was tried, and it stopped again" if tried else note,
        ),
    )


def _slow(
    incident: Incident, job: JobFacts, seats: SpareSeats, now_s: float, policy: RemedyPolicy
) -> tuple[Alternative, ...]:
    """Ski-rental: a disturbance is expected to last as long again as it has lasted, so tolerating it costs what has
    been lost so far, and moving is cheaper as soon as that exceeds the price of moving. For any duration this costs at
    most twice what hindsight would (Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988)."""
    share = incident.slow_share
    lasted_s = max(now_s - incident.since_s, 0.0)
    again_s, out_s = job.at_risk_s(now_s), _out_s(incident, job, policy)
    next_s = max(job.checkpoint_interval_s - again_s, 0.0)
    now = _evict(JobDo.EVICT_NOW, again_s + out_s, f"{again_s:.0f} s of work again", job, seats, policy)
    if job.saves_when_stopped:
        now = _evict(JobDo.EVICT_NOW, job.checkpoint_save_s + out_s, "it saves its work first", job, seats, policy)
    return (
        Alternative(
            JobDo.TOLERATE, _hours(share * lasted_s, job.gpus), f"{share:.0%} slower for {lasted_s:.0f} s so far"
        ),
        _evict(
            JobDo.MOVE_AT_CHECKPOINT, share * next_s + out_s, f"next checkpoint in {next_s:.0f} s", job, seats, policy
        ),
        now,
    )


def _leave_s(job: JobFacts, seats: SpareSeats) -> float:
    """Time that leaving the nodes costs; where all other pods stay and go on, no more than a restart in place."""
    return job.in_place_restart_s if 0 < seats.pods < len(job.pods) else job.restart_s


def _evict(do: JobDo, lost_s: float, note: str, job: JobFacts, seats: SpareSeats, policy: RemedyPolicy) -> Alternative:
    if seats.blocked or not seats.pods:
        why = seats.blocked or f"fewer healthy nodes than its {job.min_available} pods need"
        return Alternative(do, inf, why)
    missing = _missing_share(job, seats)
    if missing > 0:
        note += f"; with {seats.pods} of {len(job.pods)} pods until a node is back"
    lost_s += _leave_s(job, seats) + missing * policy.node_back_s
    return Alternative(do, _hours(lost_s, job.gpus), note)


def _missing_share(job: JobFacts, seats: SpareSeats) -> float:
    return 1 - seats.pods / max(len(job.pods), 1)


def _out_s(incident: Incident, job: JobFacts, policy: RemedyPolicy) -> float:
    """Expected loss from healthy nodes in a quarantine."""
    share_out = len(incident.nodes) / max(len({pod.node for pod in job.pods}), 1)
    return (1 - at_fault(incident)) * policy.innocent_out_s * share_out


def _hours(lost_s: float, gpus: int) -> float:
    return lost_s * gpus / 3600.0
