"""Search for headroom: the largest row that meets every goal under a budget, and what prevents a larger one."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from simulator.power.study import ComparedRun, Study, label_of, planned_budget, play, servers_with
from simulator.sweep.runner import Executor, Run, one_by_one


@dataclass(frozen=True, slots=True)
class Probe:
    """One size of the row that was tried, under every seed until one failed."""

    servers: int
    runs: tuple[ComparedRun, ...]
    broken: tuple[str, ...]
    """Goals that a run missed, each in a few words; empty: this size is safe."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Result of the search. All of it is simulated."""

    policy: str
    planned: int
    safe: int | None
    """Largest safe number of servers; None where not even the row as planned is safe."""
    guaranteed: int
    """Number of servers that cannot exceed the budget even if all draw the most that the lowest clock allows:
    arithmetic."""
    budget_w: float
    """Smallest budget of the seeds."""
    margin_w: float
    """Budget less the highest mean draw over 2 s of the safe row, or else of the row as planned, over the seeds."""
    limited_by: str
    """Goal that the next larger row tried misses, or a note that the largest row asked about still meets all; where the
    row as planned is not safe, the goal that it misses."""
    probes: tuple[Probe, ...]
    """Sizes in the order in which they were tried."""

    @property
    def more(self) -> int | None:
        return None if self.safe is None else self.safe - self.planned


def find_headroom(
    study: Study,
    policy: str,
    seeds: Sequence[int],
    *,
    most_extra_share: float = 0.6,
    on_probe: Callable[[Probe], None] = lambda _: None,
    way: Executor = one_by_one,
) -> Headroom:
    """Headroom found by halving the range between the row as planned and the largest one asked about, down to one
    server.

    Safe means: no brake, never a period of 2 s at the budget, and POLCA's latency goals for both classes, under every
    seed. It assumes that a smaller row is safer, which holds where more servers bring more load.
    way: how the runs of one size are executed, and how many at a time.
    """
    probes: list[Probe] = []

    def tried(servers: int) -> Probe:
        probe = _probe(study, policy, seeds, servers, way)
        probes.append(probe)
        on_probe(probe)
        return probe

    good, bad = study.base_servers, servers_with(study, most_extra_share) + 1
    best: Probe | None = None
    stopped: Probe | None = None
    while bad - good > 1:
        probe = tried((good + bad) // 2)
        if probe.broken:
            bad, stopped = probe.servers, probe
        else:
            good, best = probe.servers, probe
    if best is None:
        best = tried(good)
        stopped = best if best.broken else stopped
    budget_w = min(planned_budget(study, seed)[0] for seed in seeds)
    return Headroom(
        policy=policy,
        planned=study.base_servers,
        safe=None if best.broken else good,
        guaranteed=int(budget_w // study.machine.floor_w),
        budget_w=budget_w,
        margin_w=min(run.outcome.budget_w - run.outcome.peak_w for run in best.runs),
        limited_by="; ".join(stopped.broken)
        if stopped
        else f"nothing up to {bad - 1} servers, the largest row asked about",
        probes=tuple(probes),
    )


def _probe(study: Study, policy: str, seeds: Sequence[int], servers: int, way: Executor) -> Probe:
    """Result of one size: every seed until one misses a goal, which is enough to reject the size."""
    runs: list[ComparedRun] = []
    label = label_of(servers / study.base_servers - 1)
    with closing(way([Run(label, policy, seed) for seed in seeds], partial(play, study=study))) as finished:
        for _, compared in finished:
            runs.append(compared)
            if broken := missed_goals(compared):
                return Probe(servers, tuple(runs), broken)
    return Probe(servers, tuple(runs), ())


def missed_goals(compared: ComparedRun) -> tuple[str, ...]:
    """Goals that a run missed and a safe row always meets."""
    outcome = compared.outcome
    at_budget = f"draws {outcome.peak_share:.1%} of the budget" if outcome.peak_share >= 1 else ""
    return tuple(f"{words} (seed {compared.seed})" for words in (*compared.missed(), at_budget) if words)
