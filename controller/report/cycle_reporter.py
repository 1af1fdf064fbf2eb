"""The teller: after each cycle it writes the log lines and moves the metrics. One per process."""

from collections import Counter

from structlog.typing import FilteringBoundLogger

from cluster.actions import ACTIONS
from cluster.clock import Clock
from cluster.errors import ObservationError
from cluster.plans import Certificate, Finding
from controller.cycle import STAGES, Cycle
from controller.guard import REASONS
from controller.metrics.registry import Meter
from controller.ports import Undone
from controller.report.fleet_metrics import left_behind, pending_since, samples_of
from controller.report.logs import log_cycle, log_findings
from placement.batch.proposal import CERTIFICATE

RESULT_OF = {
    "ActionFailed": "failed",
    "Skipped": "skipped",
    "NotWhole": "skipped",
}
"""What became of an undone action, by the code of the reason (controller/apply.py)."""
STUCK = "stuck"
"""What became of a step that was to take back what stands half done, and failed."""
TAKES_BACK = ("GangTakenBack", "NotBound")
"""Why such a step is planned (controller/deciders/gang_rollback.py, controller/deciders/gate_timeout.py)."""

PLANNERS = ("ray", "local")
FALLBACKS = ("away", "starting", "distrusted", "deadline", "lost")
LOSSES = ("unreachable", "ended", "garbled", "refused", "unready", "useless", "silent")
"""The ordinary labels of the brain's counters, which start at 0 also where there is no brain."""
SLOTS, THINKERS = ("polish",), ("ray", "local")
NO_THOUGHT = ("deadline", "error", "garbled", "lost", "queue_full", "silent", "stuck", "unborn")
"""The same of its slots."""


class Teller:
    """Remembers the number of the cycle, since when each workload waits, and the last findings. Nothing depends on it.

    now_s: seconds since the epoch, for the time of the last cycle.
    """

    def __init__(self, meter: Meter, log: FilteringBoundLogger, now_s: Clock) -> None:
        self._meter, self._log, self._now_s = meter, log, now_s
        self._cycles = 0
        self._since_s: dict[str, float] = {}
        self._batch: Certificate | None = None
        self._findings: tuple[Finding, ...] = ()
        kinds = [kind.__name__ for kind in ACTIONS]
        meter.foresee("tonnage_actions_total", kinds, ["done", *dict.fromkeys(RESULT_OF.values()), STUCK])
        meter.foresee("tonnage_guard_refusals_total", REASONS)
        meter.foresee("tonnage_brain_plans_total", PLANNERS)
        meter.foresee("tonnage_brain_fallbacks_total", FALLBACKS)
        meter.foresee("tonnage_brain_restarts_total", LOSSES)
        meter.foresee("tonnage_brain_slot_thoughts_total", SLOTS, THINKERS)
        meter.foresee("tonnage_brain_slot_failures_total", SLOTS, NO_THOUGHT)
        meter.foresee("tonnage_brain_slot_actions_total", SLOTS)
        for slot in SLOTS:
            meter.set("tonnage_brain_slot_up", 0, slot)
        meter.foresee("tonnage_cycles_total", ["acted", "quiet", "blind", "failed"])
        meter.set("tonnage_leader", 0)

    def tell_cycle(self, cycle: Cycle) -> None:
        """A cycle that saw the cluster, whatever it did."""
        self._cycles += 1
        log_cycle(self._log, self._cycles, cycle)
        log_findings(self._log.bind(cycle=self._cycles), self._findings, cycle.plan.findings)
        self._findings = cycle.plan.findings
        self._count(cycle)
        # A pod that came since the last cycle and was bound in this one waited from the snapshot on.
        known_s = pending_since(cycle.snapshot, self._since_s)
        self._since_s = pending_since(left_behind(cycle), known_s)
        for step in cycle.outcome.done:
            for change in step.action.seat_changes:
                self._observe_wait(cycle, known_s.get(f"Pod/{change.pod}") if change.node_before is None else None)
        # Batches are rarer than scrapes, and most cycles plan none: what is told is the last one.
        self._batch = cycle.plan.certificates.get(CERTIFICATE, self._batch)
        self._meter.publish(samples_of(cycle, self._since_s, self._batch))
        self._meter.set("tonnage_last_cycle_timestamp_seconds", self._now_s())

    def _observe_wait(self, cycle: Cycle, pending_since_s: float | None) -> None:
        if pending_since_s is not None:
            waited_s = cycle.snapshot.at_s - pending_since_s + sum(cycle.stage_s.values())
            self._meter.observe("tonnage_pod_wait_seconds", waited_s)

    def tell_blind(self, error: ObservationError) -> None:
        """A cycle that could not see the cluster and decided nothing."""
        self._cycles += 1
        self._log.warning("the cluster could not be seen", cycle=self._cycles, why=str(error))
        self._meter.count("tonnage_cycles_total", "blind")

    def tell_failed(self, error: Exception) -> None:
        """A cycle that a mistake of ours ended; with the traceback, for it must be mended."""
        self._cycles += 1
        self._log.error("the cycle failed", cycle=self._cycles, exc_info=error)
        self._meter.count("tonnage_cycles_total", "failed")

    def tell_leadership(self, *, leads: bool, epoch: int) -> None:
        """This replica took the Lease or lost it. One that does not lead says nothing of the cluster: it may be old."""
        self._log.info("leadership taken" if leads else "leadership lost", epoch=epoch)
        self._meter.set("tonnage_leader", int(leads))
        self._meter.set("tonnage_lease_epoch", epoch)
        if leads:
            # A new leader gets as long for its first cycle as for any other before the loop counts as stalled.
            self._meter.set("tonnage_last_cycle_timestamp_seconds", self._now_s())
        else:
            self._since_s = {}
            self._batch = None
            self._findings = ()
            self._meter.publish(())

    def tell_unfenced(self) -> None:
        """The API server lets an earlier leader's writes through; this one leads nevertheless."""
        words = "an earlier leader that thaws could still write"
        self._log.warning("the fence does not stand", why=words, remedy="is the ValidatingAdmissionPolicy installed?")

    def _count(self, cycle: Cycle) -> None:
        meter = self._meter
        meter.count("tonnage_cycles_total", "quiet" if cycle.is_quiet else "acted")
        done = Counter((type(step.action).__name__, "done") for step in cycle.outcome.done)
        undone = Counter((type(undone.step.action).__name__, _result_of(undone)) for undone in cycle.outcome.undone)
        for (kind, result), count in (done + undone).items():
            meter.count("tonnage_actions_total", kind, result, by=count)
        for refused in cycle.plan.refused:
            meter.count("tonnage_guard_refusals_total", refused.reason.code)
        for code in {reason.code for reason in cycle.plan.cut_short}:
            meter.count("tonnage_plans_out_of_time_total", code)
        for stage in STAGES:
            if stage in cycle.stage_s:
                meter.observe("tonnage_cycle_stage_seconds", cycle.stage_s[stage], stage)
        meter.observe("tonnage_cycle_seconds", sum(cycle.stage_s.values()))


def _result_of(undone: Undone) -> str:
    return STUCK if undone.step.reason.code in TAKES_BACK else RESULT_OF.get(undone.reason.code, "failed")
