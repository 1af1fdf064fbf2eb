"""Packing on a public trace: GPUs that policies allocate, also without each mechanism or as pods leave. Simulated."""

import csv
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import DATA, RAY, Row, Rows, case, numbers, spread
from benchmarks.tables import grouped, with_error
from cluster import errors
from cluster.arrays import FloatArray
from cluster.errors import ConfigError, ControlPlaneError, Mistake
from cluster.snapshot import Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import POLICIES, policy_named
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import OPENB_PRICES, read_trace
from simulator.packing.policy_comparison import bound_pct, check_contest, play
from simulator.packing.replay import POINTS_PCT, Replay, replay
from simulator.sweep.on_ray import SweepOnRay
from simulator.sweep.runner import Executor, PolicyRun, WorkerProcesses, one_by_one, runs_of, sweep
from tests.rigs import packing_rivals
from tests.rigs.packing_ablation import FILL, SETTINGS, WHOLE, AblationRun, allocation_without, thinned
from tests.rigs.packing_churn import Churn, churning_stream, mean_allocation_pct
from tests.rigs.used_fleet import filled, packer_of, repeated

NODES = DATA / "openb" / "openb_node_list_gpu_node.csv"
PODS = tuple(
    DATA / "openb" / f"openb_pod_list_{name}.csv" for name in ("default", "gpuspec33", "multigpu20", "gpushare100")
)
PUBLISHED = DATA / "openb" / "published_allocation_pct.csv"
PUBLISHED_NAMES = {"gpuclustering": "clustering", "gpupacking": "packing"}
"""Names of two policies in the published results."""
SMALL: Mapping[str, Any] = {"nodes": None, "pods": (), "seeds": (42,)}
"""Inputs without data: a generated fleet of twelve nodes."""


def traces_of(nodes: Path | None, pods: Sequence[Path]) -> dict[str, Snapshot]:
    """The fleet with each list of pods, by the list's name. Raises ConfigError."""
    if nodes is None:
        return {"generated": trace_of(generate(12, seed=1), {})}
    return {path.stem: read_trace(nodes, path) for path in pods}


def _summary(rows: Sequence[Row]) -> Rows:
    """Means over the seeds by list and policy; the part of the way from FGD to the proven bound that a policy comes."""
    for (pods,), own in grouped(rows, "pods").items():
        base = [row["allocation_pct"]["100"] for row in own if row["policy"] == "fgd"]
        for (policy,), mine in grouped(own, "policy").items():
            at_100 = np.array([row["allocation_pct"]["100"] for row in mine])
            line: Row = {"pods": pods, "policy": policy, "seeds": len(mine)}
            for pct in POINTS_PCT:
                line[f"{pct} %"] = float(np.mean([row["allocation_pct"][str(pct)] for row in mine]))
            published = mine[0]["published"]
            line |= {
                "least": at_100.min(),
                "most": at_100.max(),
                "published": published,
                "over it": None if published is None else float(at_100.mean()) - published,
            }
            if bounds := [row["bound_pct"]["100"] for row in mine if row["bound_pct"]]:
                line["bound"] = bound = float(np.mean(bounds))
                if base:
                    fgd = np.mean(base)
                    line["gap closed"] = float((at_100.mean() - fgd) / (bound - fgd))
            line |= {
                f"ms {part}": float(np.mean([row["decision_ms"][part] for row in mine])) for part in ("mean", "p99")
            }
            yield line


@case(
    "packing-fidelity",
    "Six published policies beside their published results, on openb (simulated).",
    given={"policies": ("random", "dotprod", "clustering", "packing", "bestfit", "fgd"), "bound": False},
    quick={**SMALL, "published": None},
    summary=_summary,
)
@case(
    "packing-quality",
    "GPUs allocated beside FGD and a proven bound, on openb (simulated).",
    given={"published": None},
    quick=SMALL,
    summary=_summary,
)
def packing(
    *,
    nodes: Path | None = NODES,
    pods: Sequence[Path] = PODS,
    policies: Sequence[str] = ("fgd", "tonnage", "tonnage-learning"),
    seeds: Sequence[int] = numbers("42-51"),
    published: Path | None = PUBLISHED,
    bound: bool = True,
    jobs: int = 1,
) -> Iterator[Row]:
    """A row for each list of pods, seed and policy, as in the FGD paper. Allocations are percent of all GPUs.

    Arrivals: the shuffled list, then samples of it until 130 % of the fleet's GPUs are requested; no departures; a pod
    that does not fit is dropped. Times are measured within each process.
    """
    traces = traces_of(nodes, pods)
    check_contest(traces, tuple(policies))
    reference = _published(published) if published else {}

    @cache
    def bound_of(trace: str, seed: int) -> float:
        return bound_pct(traces[trace], seed)

    runs = runs_of(tuple(traces), policies, seeds)
    for run, played in spread(runs, partial(_play, traces=traces), jobs):
        times_ms = played.decision_s * 1000.0
        yield {
            "pods": run.trace,
            "policy": run.policy,
            "seed": run.seed,
            "allocation_pct": _points(played, played.curve.allocation_pct),
            "fragmentation_pct": _points(played, played.curve.fragmentation_pct),
            "stranded_pct": _points(played, played.curve.stranded_pct),
            "decision_ms": {
                "mean": round(float(times_ms.mean()), 4),
                "p50": round(float(np.quantile(times_ms, 0.5)), 4),
                "p99": round(float(np.quantile(times_ms, 0.99)), 4),
            },
            "unplaced": sum(played.shortages.values()),
            "upkeep_s": round(played.upkeep_s, 3),
            "bound_pct": {"100": round(bound_of(run.trace, run.seed), 3)} if bound else None,
            "published": reference.get((run.trace.removeprefix("openb_pod_list_"), run.policy)),
        }


def _play(run: PolicyRun, traces: Mapping[str, Snapshot]) -> Replay:
    """One replay, also of a rival, which is known wherever this module is."""
    assert packing_rivals.RIVALS.keys() <= POLICIES.keys()  # noqa: S101  # imported for that
    return play(run, traces)


def _points(played: Replay, values: "np.typing.NDArray[np.float64]") -> dict[str, float]:
    return {str(pct): round(played.curve.at(pct, values), 3) for pct in POINTS_PCT}


def _published(path: Path) -> dict[tuple[str, str], float]:
    """Published mean allocation at 100 % arrived by list and policy. Raises ConfigError."""
    with path.open(newline="", encoding="utf-8") as lines:
        try:
            rows = [row for row in csv.DictReader(lines) if row["arrived_pct"] == "100"]
            names = [row["sc_policy"].rpartition("-")[2].lower() for row in rows]
            return {
                (row["workload"].removeprefix("openb_pod_list_"), PUBLISHED_NAMES.get(name, name)): float(row["mean"])
                for row, name in zip(rows, names, strict=True)
            }
        except (KeyError, ValueError) as error:
            needed = "give the columns workload, sc_policy, mean and arrived_pct"
            raise ConfigError(Mistake(str(path), f"cannot be read ({error})", needed)) from error


@dataclass(frozen=True, slots=True)
class ChurnRun:
    """One replay of a list whose pods leave."""

    trace: str
    load: float
    seed: int
    policy: str


def _churn_summary(rows: Sequence[Row]) -> Rows:
    """Means over the seeds by list and load, and the last policy's paired difference from each of the others."""
    for (pods, load), own in grouped(rows, "pods", "load").items():
        of = {
            policy: {row["seed"]: row["allocation_pct"] for row in mine}
            for (policy,), mine in grouped(own, "policy").items()
        }
        seeds = sorted(set.intersection(*(set(each) for each in of.values())))
        found = {policy: np.array([each[seed] for seed in seeds]) for policy, each in of.items()}
        *others, ours = found
        line: Row = {"pods": pods, "load": load, "seeds": len(seeds)}
        line |= {policy: float(values.mean()) for policy, values in found.items()}
        yield line | {f"{ours} - {other}": with_error(found[ours] - found[other]) for other in others}


@case(
    "packing-churn",
    "GPUs allocated beside BestFit and FGD while pods come and go, on openb (simulated).",
    quick={**SMALL, "loads": (0.9,)},
    summary=_churn_summary,
)
def packing_churn(
    *,
    nodes: Path | None = NODES,
    pods: Sequence[Path] = PODS,
    loads: Sequence[float] = (0.9, 1.0, 1.05),
    policies: Sequence[str] = ("bestfit", "fgd", "tonnage-learning"),
    stays: str = "exponential",
    seeds: Sequence[int] = numbers("42-45"),
    jobs: int = 1,
) -> Iterator[Row]:
    """A row for each list, load, seed and policy: mean allocation over two mean stays after three, percent of all GPUs.

    Pods are drawn from a list with replacement; a pod that does not fit is dropped. As many pods as run in the mean at
    the offered load are placed first, with the rest of their stays. All policies meet the same arrivals and stays.
    """
    traces = traces_of(nodes, pods)
    check_contest(traces, tuple(policies))
    runs = [ChurnRun(*parts) for parts in product(traces, loads, seeds, policies)]
    for run, figures in spread(runs, partial(play_churn, traces=traces, stays=stays), jobs):
        yield {
            "pods": run.trace,
            "load": run.load,
            "stays": stays,
            "policy": run.policy,
            "seed": run.seed,
            **figures,
        }


def play_churn(run: ChurnRun, traces: Mapping[str, Snapshot], stays: str = "exponential") -> Row:
    """Figures of one replay. Arrivals and stays depend on list, load and seed alone."""
    trace = traces[run.trace]
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape)
    # FGD knows the pods of the list, as in the published runs; `tonnage-learning` knows only past arrivals.
    policy = policy_named(run.policy, Knowledge(trace, expected, run.seed))
    stream = churning_stream(trace, run.seed, Churn(run.load, stays, 3.0, 2.0))
    packer = Packer(trace, policy, content_rank(trace, run.seed))
    played = replay(trace, stream.pods, packer, time.process_time, run.seed, stream.stay)
    return {
        "allocation_pct": round(mean_allocation_pct(played, stream), 4),
        "arrivals": len(stream.pods),
        "unplaced": sum(played.shortages.values()),
        "decision_cpu_ms": round(float(played.decision_s.mean()) * 1000.0, 4),
        "upkeep_cpu_s": round(played.upkeep_s, 3),
    }


@case(
    "sweep",
    "Seconds for 200 replays one by one, in two processes and on embedded Ray (simulated).",
    quick={"runs": 4, "nodes": 12},
    needs=(RAY,),
)
def sweeps(*, runs: int = 200, nodes: int = 100, jobs: int = 2, seeds: Sequence[int] = (1,)) -> Iterator[Row]:
    """A row for each executor; the times include the start and stop of workers or Ray.

    runs: a multiple of 4, one for each policy and seed.
    """
    trace, policies = f"generated-{nodes}", ("bestfit", "fgd", "tonnage", "tonnage-learning")
    traces = {trace: trace_of(generate(nodes), OPENB_PRICES)}
    asked = runs_of((trace,), policies, range(seeds[0], seeds[0] + runs // len(policies)))
    ways: dict[str, Executor] = {
        "one by one": one_by_one,
        "processes": WorkerProcesses(jobs),
        "ray": SweepOnRay(jobs=jobs),
    }
    first: list[Any] = []
    for name, way in ways.items():
        began_s = time.perf_counter()
        swept = sweep(asked, partial(play, traces=traces), way=way)
        took_s = time.perf_counter() - began_s
        if swept.stopped:
            raise ControlPlaneError(f"{name}: {swept.stopped}")
        placed = [(each.curve.allocation_pct.tolist(), each.shortages) for _, each in swept.done]
        first = first or [placed, took_s]
        same = placed == first[0]
        yield {
            "executor": name,
            "runs": len(swept.done),
            "seconds": round(took_s, 2),
            "speed_up": first[1] / took_s,
            "same": same,
            "wrong": "" if same else f"{name} placed other pods",
        }


@case(
    "packing-speed",
    "Time of a placement decision of three policies on generated fleets of 1,213 to 20,000 nodes.",
    quick={"sizes": (100,), "loads": (30,), "policies": ("bestfit",), "warm_up": 5, "decisions": 20},
)
def packing_speed(
    *,
    policies: Sequence[str] = ("bestfit", "fgd", "tonnage"),
    sizes: Sequence[int] = (1213, 5000, 20_000),
    loads: Sequence[int] = (50, 90),
    warm_up: int = 500,
    decisions: int = 2000,
    seeds: Sequence[int] = (42,),
) -> Iterator[Row]:
    """A row for each policy, load and size; one process, decision by decision.

    A policy fills a generated fleet up to the load; nodes and running pods are then repeated up to each size. Then pods
    arrive: `first` is the first decision with an empty cache; the warm-up is not counted; the rest is timed.
    """
    for seed in seeds:
        trace = trace_of(generate(1213, seed=seed), {})
        for policy in policies:
            for load in loads:
                used = filled(trace, policy, load, seed)
                for size in sizes:
                    times_ms = 1000.0 * decision_s(used, policy, size, warm_up + decisions, seed)
                    kept = times_ms[warm_up:]
                    yield {
                        "policy": policy,
                        "load_pct": load,
                        "nodes": size,
                        "decision_ms": {
                            "mean": round(float(kept.mean()), 4),
                            "p50": round(float(np.quantile(kept, 0.5)), 4),
                            "p99": round(float(np.quantile(kept, 0.99)), 4),
                            "first": round(float(times_ms[0]), 4),
                        },
                    }


def decision_s(used: Snapshot, policy_name: str, size: int, count: int, seed: int) -> FloatArray:
    """Seconds of each decision on the repeated fleet. Arrivals are drawn from the running pods."""
    fleet = repeated(used, size)
    packer = packer_of(fleet, used, policy_name, seed)
    drawn = np.random.default_rng([seed, size]).choice(used.pods.shape, count)
    spent_s = np.zeros(count)
    for number, index in enumerate(drawn):
        shape = used.pods.shapes[index]
        began = time.perf_counter()
        packer.policy.arrived(shape)
        choice = packer.choose(shape)
        if choice is not None:
            packer.place(shape, choice)
        spent_s[number] = time.perf_counter() - began
        packer.policy.upkeep(packer.ledger)
    return spent_s


def _ablation_summary(rows: Sequence[Row]) -> Rows:
    """Allocation of the whole policy, and below it the difference without each mechanism, paired over seeds."""
    whole = {(row["pods"], row["load"], row["seed"]): row["allocation_pct"] for row in rows if row["without"] == WHOLE}
    for (without,), own in grouped(rows, "without").items():
        line: Row = {"without": without}
        pairs = []
        for (pods, load), mine in grouped(own, "pods", "load").items():
            found = np.array([row["allocation_pct"] for row in mine])
            less = np.array([whole[pods, load, row["seed"]] for row in mine])
            pairs.append(found if without == WHOLE else found - less)
            line[f"{pods}, {f'load {load:g}' if load else 'fill'}"] = with_error(pairs[-1], signed=without != WHOLE)
        yield line | {"mean": with_error(np.mean(pairs, axis=0), signed=without != WHOLE)}


@case(
    "packing-ablation",
    "GPUs allocated without each mechanism of packing, on a quarter of openb (simulated).",
    quick={**SMALL, "without": ("hostable",), "every": 2},
    summary=_ablation_summary,
)
def packing_ablation(
    *,
    nodes: Path | None = NODES,
    pods: Sequence[Path] = PODS,
    without: Sequence[str] = tuple(SETTINGS),
    loads: Sequence[float] = (FILL, 1.0),
    every: int = 4,
    seeds: Sequence[int] = numbers("42-45"),
    jobs: int = 1,
) -> Iterator[Row]:
    """A row for each list, load, seed and variant. The policy learns the mix from arrivals.

    loads: offered loads; 0: pods arrive and stay until they request the whole fleet. every: keep every so many nodes.
    """
    if unknown := [name for name in without if name not in SETTINGS]:
        raise errors.ConfigError(tuple(errors.Mistake(f"mechanism {name}", "is unknown") for name in unknown))
    traces = {name: thinned(trace, every) for name, trace in traces_of(nodes, pods).items()}
    variants = tuple(dict.fromkeys((WHOLE, *without)))
    runs = [AblationRun(*parts) for parts in product(traces, loads, seeds, variants)]
    for run, allocation in spread(runs, partial(allocation_without, traces=traces), jobs):
        yield {
            "pods": run.trace,
            "load": run.load,
            "seed": run.seed,
            "without": run.without,
            "nodes": len(traces[run.trace].nodes),
            "allocation_pct": round(allocation, 4),
        }
