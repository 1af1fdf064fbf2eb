"""Power: servers of a row under its breaker, simulated, and the reaction of the power loop, over loopback."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.cases import DATA, MINUTES, Row, Rows, case, numbers, spread
from benchmarks.tables import grouped
from cli.printing.power_study_output import record_of
from cluster.errors import ConfigError, Mistake
from power.rules import PowerRules
from simulator.power.agents import faults_from
from simulator.power.study import Study, check_study, label_of, play
from simulator.sweep.runner import PolicyRun, runs_of
from tests.agents import power_speakers
from tests.rigs.power_reaction import measured

LARGE = DATA / "power" / "servegen_rate_language_m-large.csv.gz"
SMALL_LOAD = DATA / "power" / "servegen_rate_language_m-small.csv.gz"
RIVALS = ("no-cap", "polca", "two-clocks", "tonnage")
QUICK = {
    "rate": None,
    "days": 1,
    "above": 0.95,
    "servers": 8,
    "extra": (0.4,),
    "seeds": (1,),
    "policies": ("no-cap", "tonnage"),
}
SHIPPED = PowerRules()
NONE = 1e-9
"""In place of 0, where a rule must be above it."""
MECHANISMS: Mapping[str, Mapping[str, float]] = {
    "nothing": {},
    "bursts": {"burst_share": 0.0},
    "reserve for swings": {"spike_swings": NONE},
    "all starts count": {"together_share": 1.0},
    "bounds on bursts": {"together_share": NONE, "burst_swings": NONE, "low_burst_swings": NONE},
    "a guess before the first swing": {"first_swing_share": 0.0},
    "sooner credit while calm": {"calm_credit_back_s": SHIPPED.credit_back_s},
    "deadband of caps": {"band_share": NONE},
    "margin above the draw": {"margin_share": NONE},
    "mean of draws": {"mean_s": NONE},
    "check for stuck readings": {"stuck_s": 0.0},
}
"""Settings of `power/rules.py` by the mechanism that they take out."""


def _worst(rows: Sequence[Row], by: str) -> Rows:
    """The worst of the seeds in each figure by itself: for a breaker, the mean is no safeguard."""
    for (extra, name), own in grouped(rows, "extra_share", by).items():
        line: Row = {"more": f"{extra:+.0%}", by: name, "seeds": len(own)}
        for key in ("brakes", "over_s", "peak_share"):
            line[key] = max(row[key] for row in own)
        for of in own[0]["classes"]:
            p50, p99 = (max(row["classes"][of][f"{p}_slower_pct"] for row in own) for p in ("p50", "p99"))
            line |= {f"{of} P50 / P99 %": f"{p50:+.2f} / {p99:+.2f}"}
            line |= {f"{of} held": max(row["classes"][of]["held_share"] for row in own)}
        yield line | {
            "goals met": sum(not row["missed_goals"] for row in own),
            "cpu_s": max(row["cpu_s"] for row in own),
        }


@case(
    "power",
    "Brakes, watts over the budget and latency of a row with 30 and 40 % more servers (simulated).",
    quick=QUICK,
    summary=partial(_worst, by="policy"),
)
@case(
    "power-small-load",
    "The same under the load of a smaller model (simulated).",
    given={"rate": SMALL_LOAD},
    quick={**QUICK, "policies": ("tonnage",)},
    summary=partial(_worst, by="policy"),
)
def power(
    *,
    rate: Path | None = LARGE,
    row: str = "",
    days: int | None = None,
    above: float = 0.0,
    servers: int = 40,
    extra: Sequence[float] = (0.3, 0.4),
    policies: Sequence[str] = RIVALS,
    seeds: Sequence[int] = numbers("1-5"),
    batch: int = 1,
    mix: str = "chat",
    lengths: str = "",
    burstiness: float = 1.0,
    faults: str = "",
    rules: Sequence[str] = (),
    brake: bool = True,
    jobs: int = 1,
) -> Iterator[Row]:
    """A row for each share of more servers, seed and policy: the same requests beside a row without limits.

    For each seed the budget is computed so that the planned row peaks at 79 % of it. rate: CSV; null: generated. row:
    YAML of its pools instead. above: only periods of at least this fraction of the highest rate. lengths: CSV of the
    mix `code`. faults: such as `lying:0.25@3600-7200,killed@100-900`. rules: such as spike_swings=3.
    """
    study = Study(
        rates=rate,
        row=Path(row) if row else None,
        days=days,
        above_share=above,
        mix=mix,
        lengths=Path(lengths) if lengths else None,
        base_servers=None if row else servers,
        batch=batch,
        burstiness=burstiness,
        brake=brake,
        rules=tuple((name, float(value)) for name, _, value in (rule.partition("=") for rule in rules)),
    )
    check_study(study, tuple(policies))
    study = replace(study, faults=faults_from(faults, study.curve().for_s))
    for run, compared in spread(
        runs_of([label_of(share) for share in extra], policies, seeds), partial(play, study=study), jobs
    ):
        yield record_of(run, compared)


@case(
    "power-ablation",
    "Brakes and latency without each mechanism of the allocator, in the hottest hours (simulated).",
    quick={**{key: QUICK[key] for key in ("rate", "extra", "seeds")}, "above": 0.98, "without": ("nothing", "bursts")},
    summary=partial(_worst, by="without"),
)
def power_ablation(
    *,
    rate: Path | None = LARGE,
    above: float = 0.62,
    extra: Sequence[float] = (0.3, 0.4, 0.5),
    without: Sequence[str] = tuple(MECHANISMS),
    seeds: Sequence[int] = (1, 3),
    jobs: int = 1,
) -> Iterator[Row]:
    """A row for each mechanism, share of more servers and seed."""
    if unknown := [name for name in without if name not in MECHANISMS]:
        raise ConfigError(
            tuple(Mistake(f"mechanism {name}", f"is none of {', '.join(MECHANISMS)}") for name in unknown)
        )
    study = Study(rates=rate, above_share=above)
    check_study(study, ("tonnage",))
    runs = [PolicyRun(label_of(share), "tonnage", seed) for share in extra for seed in seeds]
    for name in without:
        changed = replace(study, rules=tuple(MECHANISMS[name].items()))
        for run, compared in spread(runs, partial(play, study=changed), jobs):
            yield {"without": name, **record_of(run, compared)}


@case(
    "power-reaction",
    "Time from a breach to lower leases and limits; 200 nodes of 8 fake devices.",
    quick={"nodes": 16, "gpus": 2, "agents": 1, "rounds": 1},
    needs=(MINUTES,),
)
def power_reaction(
    *, nodes: int = 200, gpus: int = 8, agents: int = 20, rounds: int = 4, seeds: Sequence[int] = (1,)
) -> Iterator[Row]:
    """A row a seed: a controller, agents with simulated devices, and simulated nodes for the rest.

    Every device needs more than its lease. In one rack after the other, all devices of one node exceed their limits:
    their next report shows the rack over its budget. Measured by one clock, from sending that report: to the first
    lower lease that another node of the rack receives; to the lease with which the rack fits its budget again, with the
    breaching node at its highest limits; to the first lower limit that an agent sets. Then the agents' devices become
    unreadable, and at last the controller is killed: time until their limits are at the floor. agents: at most one of
    each rack of eight nodes.
    """
    racks = nodes // power_speakers.NODES_PER_RACK
    if agents > racks or nodes % power_speakers.NODES_PER_RACK:
        problem = f"{agents} agents, {nodes} nodes"
        raise ConfigError(Mistake("agents, nodes", problem, "at most one agent a rack, whole racks of eight"))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            yield measured(Path(folder), racks, gpus, agents, rounds, seed)
