"""Report on the scenarios: faults injected, time to converge, and violations found by the witness."""

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from random import Random
from statistics import median

from rich.table import Table

from tests.controlplane.auditor import audit
from tests.controlplane.faults.canaries import Waits
from tests.controlplane.faults.scenarios import EXPECTED_DOUBLE, MACHINERY, Scenario
from tests.controlplane.faults.stage import NotConvergedError, Play, Stage
from tests.controlplane.faults.tenants.registry import TENANTS

SCENARIOS: Mapping[str, tuple[Scenario, int]] = {**MACHINERY, **TENANTS}
CANARY_P95_S = 2.0
"""Wait that 95 % of the canaries must not exceed, on a machine with nothing else to do."""


SHARES = {"canary_p50_s": 0.5, "canary_p95_s": 0.95, "canary_most_s": 1.0}


@dataclass(frozen=True)
class Result:
    """One scenario, judged by the witness throughout and by the auditor at its end."""

    scenario: str
    rounds: int
    seed: int
    injected: Mapping[str, int]
    waves: int
    """Waves of which every pod ran."""
    states: int
    """States of pods that the witness checked."""
    lost: tuple[str, ...]
    """Pods that vanished without being deleted, or that a node rejected."""
    double: tuple[str, ...]
    """Devices assigned twice at some instant, and nodes over capacity."""
    broken_gangs: tuple[str, ...]
    converged_median_s: float
    converged_most_s: float
    """From when a wave was made and the fault had struck until all of it ran."""
    failure: str
    """Why it did not converge; empty when it did."""
    notes: tuple[str, ...]
    untrue: tuple[str, ...] = ()
    """Statements of statuses that were not so in the end, and failed cycles."""
    disturbed: tuple[str, ...] = ()
    """Pods of others, which never asked for Tonnage, that an operator touched."""
    canaries: int = 0
    """Pods of another namespace that were made meanwhile."""
    canary_p50_s: float | None = None
    canary_p95_s: float | None = None
    canary_most_s: float | None = None

    @property
    def is_good(self) -> bool:
        """Where the fence is away on purpose, the devices given twice must be seen."""
        if self.scenario in EXPECTED_DOUBLE:
            return bool(self.double) and not self.failure
        return not (self.lost or self.double or self.broken_gangs or self.failure or self.untrue or self.disturbed)

    @property
    def is_in_time(self) -> bool:
        """Whether canaries waited no longer than is promised; a busy machine may break this one."""
        return self.canary_p95_s is None or self.canary_p95_s <= CANARY_P95_S


def played(stage: Stage, name: str, *, pods: int, rounds: int | None = None, has_canaries: bool = True) -> Result:
    """Plays one scenario in a namespace of its own and cleans up after it."""
    scenario, usual = SCENARIOS[name]
    play = Play(stage, f"f-{name}", Random(f"{stage.seed}-{name}"), pods, has_canaries=has_canaries)  # noqa: S311
    # What a try before this one has left would hold devices that this one counts on.
    stage.admin("delete", "namespace", play.namespace, "--ignore-not-found", "--timeout=180s")
    stage.admin("create", "namespace", play.namespace)
    before, failure = stage.witness.ledger.judged, ""
    try:
        scenario(play, rounds or usual)
    except (NotConvergedError, AssertionError, OSError, HTTPException) as error:
        failure = str(error) or repr(error)
        play.notes.append(play.last_words())
    found = audit(stage.admin, play.wanted, play.least)
    lost = {pod.name for pod in stage.witness.gone(play.namespace) if not pod.is_owned and pod.uid not in play.deleted}
    double = stage.witness.ledger.double | set(found.double) | set(found.over_capacity)
    failed = {each for each in stage.witness.ledger.failed if each.startswith(f"{play.namespace}/")}
    waits = play.canaries.waits() if play.canaries is not None else Waits()
    lost |= set(waits.unplaced)
    play.end()
    stage.admin("delete", "namespace", play.namespace, *play.namespaces, "--timeout=180s")
    stage.witness.ledger.double.clear()
    return Result(
        scenario=name,
        rounds=rounds or usual,
        seed=stage.seed,
        injected=dict(sorted(play.injected.items())),
        waves=len(play.waited_s),
        states=stage.witness.ledger.judged - before,
        lost=tuple(sorted(lost | (set() if name in EXPECTED_DOUBLE else failed))),
        double=tuple(sorted(double)),
        broken_gangs=tuple(sorted(play.broken | set(found.broken_gangs))),
        converged_median_s=round(median(play.waited_s), 1) if play.waited_s else 0.0,
        converged_most_s=round(max(play.waited_s), 1) if play.waited_s else 0.0,
        failure=failure,
        notes=tuple(play.notes),
        untrue=tuple(play.untrue),
        disturbed=tuple(sorted(play.disturbed())),
        canaries=len(waits.waited_s) + len(waits.unplaced),
        **({name: waits.share_s(share) for name, share in SHARES.items()} if play.canaries is not None else {}),
    )


COLUMNS = ("scenario", "injected", "pod states judged", "lost", "double", "gangs broken", "untrue", "strangers",
           "converged, s", "canaries", "their wait, s: p50, p95, most", "")  # fmt: skip
TEXTS = ("scenario", "injected", "")


def table_of(results: list[Result]) -> Table:
    table = Table(title="Faults on a real API server; devices, pods and gangs judged at every change")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in TEXTS else "right")
    for each in results:
        injected = ", ".join(f"{count} {what}" for what, count in each.injected.items())
        waits = (each.canary_p50_s, each.canary_p95_s, each.canary_most_s)
        table.add_row(
            each.scenario,
            injected or "–",
            f"{each.states:,}",
            str(len(each.lost)),
            str(len(each.double)),
            str(len(each.broken_gangs)),
            str(len(each.untrue)),
            str(len(each.disturbed)),
            f"{each.converged_median_s:g} (most {each.converged_most_s:g})" if each.waves else "–",
            str(each.canaries or "–"),
            ", ".join(f"{wait:g}" for wait in waits if wait is not None) or "–",
            _verdict(each),
        )
    return table


def _verdict(result: Result) -> str:
    if not result.is_good:
        return f"FAILED {result.failure}"
    return "ok" if result.is_in_time else "LATE"


def why(result: Result) -> str:
    """The first of what was wrong, for people."""
    parts = {
        "lost": result.lost,
        "double": result.double,
        "gangs": result.broken_gangs,
        "untrue": result.untrue,
        "strangers": result.disturbed,
        "notes": result.notes,
    }
    words = [f"{what}: {'; '.join(found[:5])}" for what, found in parts.items() if found]
    return f"{result.scenario}: {result.failure} {' | '.join(words)}".strip()
