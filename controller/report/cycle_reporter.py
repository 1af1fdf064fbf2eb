"""Reporter of cycles: writes the log lines and updates the metrics after each cycle. One per process."""

from collections import Counter

from structlog.typing import FilteringBoundLogger

from cluster import actions, clock, errors, plans
from controller.background.kinds import KINDS
from controller.cycle import STAGES, Cycle
from controller.deciders.pipeline import DECIDER_FAILED, ORDER
from controller.guard import REASONS
from controller.metrics.registry import Meter
from controller.ports import Undone
from controller.report.accounts import MOST_ACCOUNTS, OTHERS, Account, accounts_of
from controller.report.fleet_metrics import left_behind, pending_since, samples_of
from controller.report.logs import log_cycle, log_findings

LONGEST_S = 300.0
"""Seconds between two cycles, at most, for which devices are counted: what was held in a longer gap nobody saw."""
RESULT_OF = {
    "ActionFailed": "failed",
    "Skipped": "skipped",
    "NotWhole": "skipped",
}
"""Result label of an action that was not done, by the code of the reason (controller/cycle.py)."""
STUCK = "stuck"
"""Result label of a failed rollback."""
ROLLBACKS = ("GangTakenBack", "MemberLost", "NotBound")
"""Codes of the reasons for rollbacks (controller/deciders/closing.py)."""

LOSSES = ("unreachable", "ended", "garbled", "refused", "unready", "silent", "broken")
"""Usual reasons for which the driver of background work is started again."""
OUT_OF_TIME = tuple(f"{part}OutOfTime" for part in ("Hold", "Mix", "Moves", "Packing", "Polish"))
"""Codes of `Plan.cut_short`."""


class CycleReporter:
    """Writer of the log lines and metrics of cycles.

    It keeps the cycle's number, the start of each workload's wait and the last findings and failures; no
    decision depends on them.
    now_s: clock for the time of the last cycle, seconds since the epoch.
    """

    def __init__(self, meter: Meter, log: FilteringBoundLogger, now_s: clock.Clock) -> None:
        self._meter, self._log, self._now_s = meter, log, now_s
        self._cycles = 0
        self._counted_at_s: float | None = None
        self._accounts = set[Account]()
        self._since_s: dict[str, float] = {}
        self._findings: tuple[plans.Finding, ...] = ()
        self._undone: tuple[Undone, ...] = ()
        kinds = [kind.__name__ for kind in actions.ACTIONS]
        meter.foresee("tonnage_actions_total", kinds, ["done", *dict.fromkeys(RESULT_OF.values()), STUCK])
        meter.foresee("tonnage_guard_refusals_total", REASONS)
        meter.foresee("tonnage_plans_out_of_time_total", OUT_OF_TIME)
        meter.foresee("tonnage_decider_failures_total", [entry.name for entry in ORDER])
        meter.foresee("tonnage_background_restarts_total", LOSSES)
        meter.foresee("tonnage_background_tasks_total", KINDS, ["done", "failed"])
        meter.foresee("tonnage_cycles_total", ["acted", "quiet", "blind", "failed"])
        meter.set("tonnage_leader", 0)

    def report_cycle(self, cycle: Cycle) -> None:
        """Report a cycle that observed the cluster."""
        self._cycles += 1
        log_cycle(self._log, self._cycles, cycle, self._undone)
        self._undone = cycle.outcome.undone
        log_findings(self._log.bind(cycle=self._cycles), self._findings, cycle.plan.findings)
        self._findings = cycle.plan.findings
        meter = self._meter
        meter.count("tonnage_cycles_total", "quiet" if cycle.is_quiet else "acted")
        done = Counter((type(step.action).__name__, "done") for step in cycle.outcome.done)
        undone = Counter(
            (
                type(undone.step.action).__name__,
                STUCK if undone.step.reason.code in ROLLBACKS else RESULT_OF.get(undone.reason.code, "failed"),
            )
            for undone in cycle.outcome.undone
        )
        for (kind, result), count in (done + undone).items():
            meter.count("tonnage_actions_total", kind, result, by=count)
        for refused in cycle.plan.refused:
            meter.count("tonnage_guard_refusals_total", refused.reason.code)
        for name in {each.about for each in cycle.plan.findings if each.reason.code == DECIDER_FAILED}:
            meter.count("tonnage_decider_failures_total", name.partition("/")[2])
        for code in {reason.code for reason in cycle.plan.cut_short}:
            meter.count("tonnage_plans_out_of_time_total", code)
        for stage in STAGES:
            if stage in cycle.stage_s:
                meter.observe("tonnage_cycle_stage_seconds", cycle.stage_s[stage], stage)
        meter.observe("tonnage_cycle_seconds", sum(cycle.stage_s.values()))
        # The wait of a pod that is new and was bound in this cycle begins with the snapshot.
        known_s = pending_since(cycle.snapshot, self._since_s)
        self._since_s = pending_since(left_behind(cycle), known_s)
        for step in cycle.outcome.done:
            for change in step.action.seat_changes:
                pending_since_s = known_s.get(f"Pod/{change.pod}") if change.node_before is None else None
                if pending_since_s is not None:
                    waited_s = cycle.snapshot.at_s - pending_since_s + sum(cycle.stage_s.values())
                    self._meter.observe("tonnage_pod_wait_seconds", waited_s)
        at_s, before_s = cycle.snapshot.at_s, self._counted_at_s
        self._counted_at_s = at_s
        for_s = 0.0 if before_s is None or not 0 <= at_s - before_s <= LONGEST_S else at_s - before_s
        for (team, space, *rest), (devices, usd_per_hour) in accounts_of(cycle.snapshot).items():
            account: Account = (team, space, rest[0], rest[1])
            if account not in self._accounts and len(self._accounts) >= MOST_ACCOUNTS:
                account = (team, OTHERS, rest[0], rest[1])
            self._accounts.add(account)
            meter.count("tonnage_device_seconds_total", *account, by=devices * for_s)
            meter.count("tonnage_device_dollars_total", *account, by=usd_per_hour * for_s / 3600)
        self._meter.publish("cycle", samples_of(cycle, self._since_s))
        self._meter.set("tonnage_last_cycle_timestamp_seconds", self._now_s())

    def report_blind(self, error: errors.ObservationError) -> None:
        """Report a cycle that could not observe the cluster and decided nothing."""
        self._cycles += 1
        self._log.warning("the cluster could not be observed", cycle=self._cycles, why=str(error))
        self._meter.count("tonnage_cycles_total", "blind")

    def report_failed(self, error: Exception) -> None:
        """Report a cycle that failed by a bug, with the traceback."""
        self._cycles += 1
        self._log.error("the cycle failed", cycle=self._cycles, exc_info=error)
        self._meter.count("tonnage_cycles_total", "failed")

    def report_stepping_down(self, failures: int) -> None:
        """Report that this replica gives the Lease up, because its cycles fail."""
        self._log.warning("stepping down", why=f"{failures} cycles failed in a row; another replica may do better")

    def report_leadership(self, *, leads: bool, epoch: int) -> None:
        """Report that this replica took or lost the Lease.

        A replica that does not lead exposes no metrics of the cluster, because they would be stale.
        """
        self._log.info("leadership taken" if leads else "leadership lost", epoch=epoch)
        self._meter.set("tonnage_leader", int(leads))
        self._meter.set("tonnage_lease_epoch", epoch)
        if leads:
            # The first cycle of a new leader gets the same time as any other before the loop counts as stalled.
            self._meter.set("tonnage_last_cycle_timestamp_seconds", self._now_s())
        else:
            self._since_s, self._counted_at_s = {}, None
            self._findings, self._undone = (), ()
            self._meter.publish("cycle", ())

    def report_unfenced(self) -> None:
        """Report that the API server accepts writes of earlier leaders; this replica leads nevertheless."""
        words = "an earlier leader that resumes could still write"
        self._log.warning("the fence is not enforced", why=words, remedy="is the ValidatingAdmissionPolicy installed?")
