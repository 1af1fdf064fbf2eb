"""Comparison of power policies on the same row, requests and budget, and the search for the largest safe row."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from cluster.arrays import FloatArray
from cluster.errors import ConfigError, Mistake, tried
from power.rules import PowerRules
from simulator.power import requests
from simulator.power.agents import Fault
from simulator.power.machine import DGX_A100
from simulator.power.policies import BASELINES, OUT_OF_BAND_S, PERIOD_S, RowPolicy, baseline
from simulator.power.row_file import read_row
from simulator.power.tonnage_policy import TonnagePower
from simulator.power.trial import PoolOutcome, TrialOutcome, TrialRules, run_trial
from simulator.sweep.runner import Executor, PolicyRun, one_by_one

POLICIES = (*BASELINES, TonnagePower.name)
IN_BAND = ("tonnage", "two-clocks")
DELAY_S = dict.fromkeys(IN_BAND, 2.0)
"""Control delay of each policy by default: in band through an agent; all others out of band."""
TELEMETRY_S = dict.fromkeys(IN_BAND, 0.0)
"""Delay from the end of a period until a policy has its reading, in whole periods. Readings of agents arrive with their
reports, within a tenth of a period (the 99th percentile of `make bench-power-reaction`); all others are those of meters
and management controllers."""
METER_TELEMETRY_S = 2.0

GOALS = {("low", 50): 5.0, ("low", 99): 50.0, ("high", 50): 1.0, ("high", 99): 5.0}
"""POLCA's goals: the allowed increase of each class's latency in percent, at the median and the 99th percentile."""


@dataclass(frozen=True, slots=True)
class Study:
    """Inputs of a comparison. Together with a run of the sweep they determine the result."""

    row: Path | None = None
    """YAML of the row as planned (`row_file.py`); None for A100 servers that serve the mix, half of them low."""
    grow: tuple[str, ...] = ()
    """Pools of that row to which servers are added; none: all, in proportion."""
    rates: Path | None = None
    """CSV of request rates; None for the built-in synthetic rates."""
    days: int | None = None
    above_share: float = 0.0
    """Use only the stretches with at least this fraction of the highest rate."""
    mix: str = "chat"
    lengths: Path | None = None
    """CSV of prompt and output lengths for the mix `code`."""
    base_servers: int | None = None
    """Servers of the row as planned, which its budget was made for; 40 where no file says so."""
    base_peak_share: float = 0.79
    """Peak draw of that row as a fraction of the budget."""
    budget_w: float | None = None
    """Given budget; None computes it from the row as planned."""
    delay_s: float | None = None
    """Control delay of every policy; None gives each its own."""
    telemetry_s: float | None = None
    """Delay of readings of every policy; None gives each its own."""
    batch: int = 1
    burstiness: float = 1.0
    faults: tuple[Fault, ...] = ()
    brake: bool = True
    noise_share: float = 0.01
    """Error of each reading of a server as a fraction of its draw, beside 5 W; 0: none."""
    rules: tuple[tuple[str, float], ...] = ()
    """Settings of `power/rules.py` that Tonnage's policies have instead of their defaults, by name."""

    @property
    def planned(self) -> int:
        """Servers of the row as planned."""
        if self.row is not None:
            return sum(pool.servers for pool in read_row(self.row, self.curve()))
        return 40 if self.base_servers is None else self.base_servers

    def pools(self, servers: int) -> tuple[requests.ServerPool, ...]:
        """The row with this number of servers in all. Raises ConfigError where its files cannot be read."""
        if self.row is None:
            mix = requests.CHAT_MIX if self.mix == "chat" else requests.code_mix(self.lengths)
            curve, counts = self.curve(), ((servers + 1) // 2, servers // 2)
            return tuple(
                requests.ServerPool(
                    name, number, counts[number], DGX_A100, curve, mix, burstiness=self.burstiness, batch=self.batch
                )
                for number, name in enumerate(requests.CLASSES)
            )
        pools = read_row(self.row, self.curve())
        grows = [not self.grow or pool.name in self.grow for pool in pools]
        most = sum(pool.servers for pool, more in zip(pools, grows, strict=True) if more)
        ends = np.cumsum([pool.servers * more for pool, more in zip(pools, grows, strict=True)])
        added = np.diff(np.rint(ends * (servers - self.planned) / most).astype(int), prepend=0).tolist()
        return tuple(replace(pool, servers=pool.servers + more) for pool, more in zip(pools, added, strict=True))

    def curve(self) -> requests.RateCurve:
        """Raises ConfigError where the rates cannot be read."""
        curve = requests.made_up_rates(self.days) if self.rates is None else requests.read_rates(self.rates, self.days)
        return curve.above(self.above_share) if self.above_share else curve

    def delay_of(self, policy: str) -> float:
        return DELAY_S.get(policy, OUT_OF_BAND_S) if self.delay_s is None else self.delay_s

    def telemetry_of(self, policy: str) -> float:
        return TELEMETRY_S.get(policy, METER_TELEMETRY_S) if self.telemetry_s is None else self.telemetry_s


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRun:
    """A run beside the same requests served without any limit."""

    extra_share: float
    seed: int
    delay_s: float
    telemetry_s: float
    outcome: TrialOutcome
    free: tuple[PoolOutcome, ...]
    """Results of the pools without any limit."""
    cpu_s: float
    """Processor time of this run alone."""

    def slower_pct(self, of_pool: str, percentile: int) -> float:
        """Increase of a pool's latency, or of the time of its steps, at this percentile (50 or 99), in percent."""
        mine, free = self.outcome.of_pool(of_pool), next(pool for pool in self.free if pool.name == of_pool)
        ratio = mine.p50_s / free.p50_s if percentile == 50 else mine.p99_s / free.p99_s
        return 100.0 * (ratio - 1.0)

    def missed(self) -> tuple[str, ...]:
        """POLCA's goals that it misses, each in a few words."""
        missed = [
            f"{pool.name} P{percentile} +{self.slower_pct(pool.name, percentile):.2f} % (goal {goal:g} %)"
            for pool in self.outcome.pools
            for (name, percentile), goal in GOALS.items()
            if name == requests.CLASSES[pool.of_class] and not self.slower_pct(pool.name, percentile) < goal
        ]
        return (*([f"{self.outcome.brakes} brakes"] if self.outcome.brakes else []), *missed)


def label_of(extra_share: float) -> str:
    """Label of a row with this fraction of additional servers, as used by sweeps: `+30 %`."""
    return f"+{100 * extra_share:g} %"


def extra_of(label: str) -> float:
    return float(label.strip("+ %")) / 100


def check_study(study: Study, policies: tuple[str, ...], *, option: str = "--policy") -> None:
    """Raises ConfigError with every error, before any time is spent.

    option: the option that named the policies.
    """
    mistakes = [
        Mistake(f"{option} {name}", "there is no such policy", f"choose one of {', '.join(POLICIES)}")
        for name in policies
        if name not in POLICIES
    ]
    if study.telemetry_s is not None and study.telemetry_s % PERIOD_S:
        late = f"readings are means of {PERIOD_S:g} s: give a multiple of that"
        mistakes.append(Mistake("--telemetry", f"is {study.telemetry_s:g}", late))
    if study.lengths is not None and study.mix != "code":
        mistakes.append(Mistake("--lengths", f"are not used by the mix {study.mix!r}", "add --mix code"))
    if study.row is not None and study.base_servers is not None:
        mistakes.append(Mistake("--servers", "is stated in the file of --row too", "leave it out"))
    known = {field.name for field in fields(PowerRules)}
    mistakes += [
        Mistake(f"--rule {name}", "there is no such rule", "see power/rules.py")
        for name, _ in study.rules
        if name not in known
    ]
    nothing: tuple[requests.ServerPool, ...] = ()
    pools = tried(lambda: study.pools(study.planned), nothing, mistakes)
    mistakes += [
        Mistake(f"--grow {name}", "there is no such pool", f"choose of {', '.join(pool.name for pool in pools)}")
        for name in study.grow
        if name not in [pool.name for pool in pools]
    ]
    if mistakes:
        raise ConfigError(tuple(mistakes))


def servers_with(study: Study, extra_share: float) -> int:
    return round(study.planned * (1 + extra_share))


def play(run: PolicyRun, study: Study) -> ComparedRun:
    """One run of a sweep; `run.trace` gives the number of additional servers (see label_of)."""
    extra_share = extra_of(run.trace)
    budget_w = planned_budget(study, run.seed)
    servers = servers_with(study, extra_share)
    free = _unlimited(study, servers, run.seed)
    began_s = time.process_time()
    outcome = _trial(study, servers, run.seed, run.policy, budget_w)
    return ComparedRun(
        extra_share=extra_share,
        seed=run.seed,
        delay_s=study.delay_of(run.policy),
        telemetry_s=study.telemetry_of(run.policy),
        outcome=outcome,
        free=free.pools,
        cpu_s=time.process_time() - began_s,
    )


def planned_budget(study: Study, seed: int) -> float:
    """The row's budget in watts: the given one, else such that the row as planned peaks at its fraction of it, under
    this seed's requests.
    """
    if study.budget_w is not None:
        return study.budget_w
    return _unlimited(study, study.planned, seed).peak_w / study.base_peak_share


@lru_cache(maxsize=4)
def _unlimited(study: Study, servers: int, seed: int) -> TrialOutcome:
    """A row of these servers without any limit."""
    return _trial(
        replace(study, faults=(), brake=False, noise_share=0.0, rules=()), servers, seed, "no-cap", float("inf")
    )


@lru_cache(maxsize=1)
def _requests(study: Study, servers: int, seed: int) -> requests.Requests:
    return requests.draw_requests(study.pools(servers), seed)


def _trial(study: Study, servers: int, seed: int, policy: str, budget_w: float) -> TrialOutcome:
    delay_s, telemetry_s = study.delay_of(policy), study.telemetry_of(policy)
    pools = study.pools(servers)

    def make_policy(budget_w: float) -> RowPolicy:
        if policy == TonnagePower.name:
            return TonnagePower(pools, budget_w, delay_s, telemetry_s, study.rules)
        return baseline(policy, pools, budget_w, delay_s)

    return run_trial(
        pools,
        _requests(
            replace(study, faults=(), brake=True, delay_s=None, telemetry_s=None, noise_share=0.0, rules=()),
            servers,
            seed,
        ),
        for_s=pools[0].curve.for_s,
        make_policy=make_policy,
        rules=TrialRules(
            budget_w=budget_w,
            delay_s=delay_s,
            telemetry_s=telemetry_s,
            brake=study.brake,
            faults=study.faults,
            noise_share=study.noise_share,
            safe_floor_w=safe_floor_w(pools, budget_w),
        ),
        seed=seed,
    )


def safe_floor_w(pools: Sequence[requests.ServerPool], budget_w: float) -> FloatArray:
    """Limit of each server that hears nothing: a part of the budget by its highest draw, where its clock can keep to
    it."""
    servers = [pool.servers for pool in pools]
    floor_w = np.repeat([pool.machine.floor_w for pool in pools], servers)
    highest_w = np.repeat([pool.machine.highest_w for pool in pools], servers)
    part_w: FloatArray = np.minimum(np.maximum(highest_w * (budget_w / highest_w.sum()), floor_w), highest_w)
    return part_w


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
    def costs(self) -> tuple[tuple[str, int, float, float], ...]:
        """(pool, servers, its slowdown in percent at the median, and at the 99th percentile) of the safe row."""
        runs = next((probe.runs for probe in self.probes if probe.servers == self.safe), ())
        return tuple(
            (
                pool.name,
                servers,
                max(run.slower_pct(pool.name, 50) for run in runs),
                max(run.slower_pct(pool.name, 99) for run in runs),
            )
            for pool, servers in (zip(runs[0].outcome.pools, runs[0].outcome.servers, strict=True) if runs else ())
        )

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

    good, bad = study.planned, servers_with(study, most_extra_share) + 1
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
    budget_w = min(planned_budget(study, seed) for seed in seeds)
    least_w, twice_w = (
        sum(pool.servers * pool.machine.floor_w for pool in study.pools(count * study.planned)) for count in (1, 2)
    )
    more = (budget_w - least_w) // ((twice_w - least_w) / study.planned)
    return Headroom(
        policy=policy,
        planned=study.planned,
        safe=None if best.broken else good,
        guaranteed=int(study.planned + more),
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
    label = label_of(servers / study.planned - 1)
    with closing(way([PolicyRun(label, policy, seed) for seed in seeds], partial(play, study=study))) as finished:
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
