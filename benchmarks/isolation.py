"""Agents' sandboxes: survival and slow-down under isolation and its rivals, what each step buys, and what it costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.cases import DATA, EMULATED, GUEST, Row, Rows, case, numbers, say
from benchmarks.tables import grouped
from isolation.settings import Settings
from tests.kernel.attacks import ATTACKS, CALLS
from tests.rigs.kernel.guest import Guest, booted
from tests.rigs.sandboxes import runs as sandboxes_runs
from tests.rigs.sandboxes.model import MODELLED, Model, modelled
from tests.rigs.sandboxes.replay import TIMEOUT_FACTOR
from tests.rigs.sandboxes.traces import published

COSTS = "tests.rigs.sandboxes.costs"


def _summary(rows: Sequence[Row]) -> Rows:
    """One row a policy. Times are of agents that lived over the same agent's without limits, as is the peak of memory:
    medians with the 95 % interval of a bootstrap over the seeds. killed, refused: tool calls."""
    free = {row["seed"]: row for row in rows if row["policy"] == "unlimited"}
    known = get_args(sandboxes_runs.SandboxPolicyName)
    by_policy = grouped(rows, "policy")
    for (policy,) in sorted(by_policy, key=lambda key: known.index(key[0]) if key[0] in known else len(known)):
        own = by_policy[policy,]
        agents = [agent for row in own for agent in row["agents"]]
        line: Row = {"policy": policy, "runs": len(own)}
        line["all live"] = sum(all(agent["survived"] for agent in row["agents"]) for row in own)
        for name, priority in (("high dead", 1), ("low dead", 0)):
            line[name] = sum(agent["priority"] == priority and not agent["survived"] for agent in agents)
        line["OOM kills"] = sum(row["kernel_kills"] for row in own)
        line["killed"] = f"{sum(each['killed_calls'] for each in agents)}/{sum(each['calls'] for each in agents)}"
        line["refused"] = sum(each["refused_calls"] for each in agents)
        beside = [(row, free[row["seed"]]) for row in own if row["seed"] in free]
        for name, priority in (("high time", 1), ("low time", 0)):
            ratios = [
                agent["for_s"] / reference["for_s"]
                for row, without in beside
                for agent, reference in zip(row["agents"], without["agents"], strict=True)
                if agent["priority"] == priority and agent["survived"]
            ]
            line[name] = _median(ratios) + (f", P95 {np.percentile(ratios, 95):.2f}" if ratios else "")
        yield line | {"peak": _median([row["peak_mib"] / without["peak_mib"] for row, without in beside])}


def _median(values: Sequence[float]) -> str:
    if not values:
        return "-"
    medians = np.median(np.random.default_rng(0).choice(np.array(values), (2000, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return f"{np.median(values):.2f} [{low:.2f}, {high:.2f}]"


QUICK: Mapping[str, Any] = {"seeds": (101,), "traces": None, "policies": ("unlimited", "whole-claims")}
FAST: Mapping[str, Any] = {**QUICK, "time_scale": 0.02, "memory_scale": 0.125}


@case(
    "sandboxes",
    "Agents that survive, and their slow-down, under isolation and static limits.",
    quick=FAST,
    needs=(GUEST,),
    summary=_summary,
)
@case(
    "sandboxes-infeasible",
    "The same on little more than half of the agents' summed peaks.",
    given={"agents": "infeasible", "seeds": numbers("101-200"), "policies": ("whole-claims",), "time_scale": 0.05},
    quick=FAST,
    needs=(GUEST,),
    summary=_summary,
)
@case(
    "sandboxes-mixed",
    "The same for sixteen agents of published traces with random phases.",
    given={
        "agents": "mixed",
        "policies": ("unlimited", "static", "whole-claims"),
        "memory_scale": 0.125,
        "time_scale": 0.02,
        "traces": DATA / "agents" / "tool_call_traces.json.gz",
    },
    quick={**QUICK, "time_scale": 0.01},
    needs=(GUEST,),
    summary=_summary,
)
@case(
    "sandboxes-pressure",
    "The same beside killers by pressure (PSI), such as systemd-oomd.",
    given={
        "kernel": "emulated",
        "seeds": numbers("101-104"),
        "policies": ("unlimited", "none", "static", "high-rule", "pressure", "pressure-brake", "whole-claims"),
    },
    quick={**FAST, "policies": ("unlimited", "pressure")},
    needs=(EMULATED,),
    summary=_summary,
)
@case(
    "sandboxes-model",
    "The same with a modelled kernel and exact times (simulated).",
    given={"kernel": "model"},
    quick={"seeds": (101,)},
    summary=_summary,
)
def sandboxes(
    *,
    agents: str = "trio",
    seeds: Sequence[int] = numbers("101-120"),
    policies: Sequence[str] = get_args(sandboxes_runs.SandboxPolicyName),
    traces: Path | None = None,
    count: int = 16,
    density: float = 3.5,
    memory_scale: float = 0.25,
    time_scale: float = 0.1,
    kernel: str = "uml",
    guest_mib: int = 1024,
) -> Iterator[Row]:
    """A row for each seed and policy.

    agents: trio, three with colliding bursts on 87 % of their summed peaks; infeasible, the same on 55 %; mixed, so
    many (count), a quarter of high priority, on a part of the static limits' sum. density: that sum over it. Scales:
    replayed over true. kernel: uml, emulated (with PSI) or model. All runs are in the same guest, the policies of a
    seed in an order that it draws, so that none has the busier machine by its place.
    """
    known = published(traces) if traces else ()
    runs: dict[int, list[sandboxes_runs.SandboxRun]] = {}
    for seed in seeds:
        chance = np.random.default_rng(seed)
        chosen, budget_mib = sandboxes_runs.agents_of(agents, seed, chance, known, count, density)  # type: ignore[arg-type]
        able = tuple(one for one in policies if kernel == "emulated" or one not in sandboxes_runs.PRESSURE)
        runs[seed] = list(sandboxes_runs.runs_of(able, chosen, budget_mib, memory_scale, time_scale, chance))
    if kernel == "model":
        for seed, of_seed in runs.items():
            yield from ({"seed": seed} | asdict(modelled(run)) for run in of_seed if run.policy in MODELLED)
        return
    with booted(memory_mib=guest_mib, kernel=kernel) as guest:  # type: ignore[arg-type]
        _replayed(guest, next(iter(runs.values()))[0])  # thrown away: it pays for the first touch of the guest's memory
        for seed, of_seed in runs.items():
            for index in np.random.default_rng([seed, 1]).permutation(len(of_seed)):
                yield {"seed": seed} | _replayed(guest, of_seed[index])


def _replayed(guest: Guest, run: sandboxes_runs.SandboxRun) -> Row:
    within_s = 60 + TIMEOUT_FACTOR * run.time_scale * max(agent.for_s + 60 for agent in run.agents)
    result = guest.call("tests.rigs.sandboxes.replay:run_in_guest", sandboxes_runs.as_json(run), within_s=within_s)
    found = tuple(sandboxes_runs.AgentResult(**agent) for agent in result.pop("agents"))
    return asdict(sandboxes_runs.SandboxResult(agents=found, **result))


@case(
    "sandbox-ablation",
    "Survival and slow-down without each step of isolation (simulated).",
    quick={"seeds": (1,)},
    summary=_summary,
)
def sandbox_ablation(
    *,
    agents: str = "trio",
    seeds: Sequence[int] = numbers("1-20"),
    guarantees: bool = False,
) -> Iterator[Row]:
    """A row for each seed and variant. guarantees: whether memory is kept for the high agents."""
    full = Settings()
    variants = {"all": full, "no ageing": replace(full, starvation_s=1e9)}
    variants["no bound of freezing"] = replace(full, frozen_s=1e9)
    for seed in seeds:
        chance = np.random.default_rng(seed)
        chosen, budget_mib = sandboxes_runs.agents_of(agents, seed, chance, (), 16, 3.5)  # type: ignore[arg-type]
        for run in sandboxes_runs.runs_of(("unlimited", sandboxes_runs.OURS), chosen, budget_mib, 1.0, 1.0, chance):
            for name, settings in {"unlimited": full}.items() if run.policy == "unlimited" else variants.items():
                yield {"seed": seed, **asdict(Model(run, settings, guarantees=guarantees).result()), "policy": name}


def _percentiles(figure: str, values: Sequence[float]) -> Row:
    least, p50, p95, p99, most = np.percentile(values, [0, 50, 95, 99, 100]).tolist()
    return {
        "figure": figure,
        "min": least,
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": most,
    }


@case(
    "sandbox-costs",
    "Time from brake to freeze, and CPU of the controller at rest.",
    quick={"repetitions": 2, "agents": 2, "seconds": 1.0},
    needs=(GUEST,),
)
def sandbox_costs(*, repetitions: int = 100, agents: int = 64, seconds: float = 20.0) -> Iterator[Row]:
    """A row for each figure. agents: idle ones of the controller at rest, for so many seconds.

    User-Mode Linux on a shared machine: no absolute latency follows for native kernels, only an upper bound.
    """
    with booted() as guest:
        for name, rate_mib_s in (("500 MiB/s", 500.0), ("as fast as it can", 0.0)):
            found = guest.call(f"{COSTS}:freezes", repetitions, rate_mib_s, 64)
            yield _percentiles(f"brake to freeze written, {name}, ms", found["milliseconds"])
            yield _percentiles(f"held beyond the lease, {name}, MiB", found["over_mib"])
        found = guest.call(f"{COSTS}:calls", repetitions)
        yield _percentiles("process in a leaf of its own, ms", found["own"])
        yield _percentiles("process in the shared leaf, ms", found["shared"])
        more = [own - shared for own, shared in zip(found["own"], found["shared"], strict=True)]
        yield _percentiles("own leaf over the shared one, ms", more)
        yield _percentiles("leaf made, limited, read and removed, ms", found["leaf"])
        rest = guest.call(f"{COSTS}:at_rest", agents, seconds)
        yield {"figure": f"controller at rest, {agents} agents, share of a core", "p50": rest["share"]}
        yield {"figure": "its wake-ups a second", "p50": rest["wake_ups"] / seconds}


@case(
    "sandbox-attacks",
    "Times of a pod's tool calls while another pod attacks the node agent.",
    quick={"rounds": 1, "calls": 2, "attacks": ("calm", "forged")},
    needs=(GUEST,),
)
def sandbox_attacks(*, rounds: int = 3, calls: int = 40, attacks: Sequence[str] = tuple(ATTACKS)) -> Iterator[Row]:
    """A row for each kind of call and attack. rounds: times that all are gone through. calls: beside each, a round.

    `calm` and `busy` are references. Ratios of the 95th percentiles have the 95 % interval of a bootstrap.
    """
    found: dict[tuple[str, str], list[float]] = {(kind, attack): [] for kind in CALLS for attack in attacks}
    with booted() as guest:
        for number in range(rounds):
            for kind, attack in found:
                found[kind, attack] += guest.call("tests.kernel.attacks:beside", attack, kind, calls)
                say(f"round {number + 1} {kind} {attack}: done")
    for (kind, attack), seconds in found.items():
        p50, p95 = (np.percentile(seconds, [50, 95]) * 1e3).tolist()
        row: Row = {
            "call": kind,
            "beside": attack,
            "calls": len(seconds),
            "p50_ms": p50,
            "p95_ms": p95,
        }
        for reference in ("calm", "busy"):
            if beside := found.get((kind, reference)):
                chance = np.random.default_rng(0)
                drawn = [chance.choice(np.array(each), (2000, len(each))) for each in (seconds, beside)]
                above, below = (np.percentile(each, 95, axis=1) for each in drawn)
                low, high = np.percentile(above / below, [2.5, 97.5])
                row[f"p95 / {reference}"] = f"{p95 / 1e3 / np.percentile(beside, 95):.2f} [{low:.2f}, {high:.2f}]"
        yield row
