"""Results of power simulations: a table for people, JSON for programs."""

import json
from collections.abc import Sequence

from cli.printing.tables import table
from simulator.power.requests import DAY_S
from simulator.power.study import ComparedRun, Headroom, Probe
from simulator.sweep.runner import PolicyRun

WORST = {"brakes": "d", "over_s": ".1f", "breaker_share": ".3f", "peak_share": ".3f"}
"""Figures of an outcome in the table, with their formats."""
Done = Sequence[tuple[PolicyRun, ComparedRun]]


def record_of(run: PolicyRun, compared: ComparedRun) -> dict[str, object]:
    """One run as plain data, for programs."""
    outcome = compared.outcome
    classes = {}
    for mine in outcome.pools:
        name = mine.name
        classes[name] = {
            "requests": mine.requests,
            "unserved": mine.unserved,
            "p50_s": round(mine.p50_s, 3),
            "p99_s": round(mine.p99_s, 3),
            "p50_slower_pct": round(compared.slower_pct(name, 50), 3),
            "p99_slower_pct": round(compared.slower_pct(name, 99), 3),
            "held_share": round(mine.held_share, 5),
        }
    return {
        "simulated": True,
        "policy": run.policy,
        "seed": run.seed,
        "extra_share": round(compared.extra_share, 6),
        "servers": sum(outcome.servers),
        "days": round(outcome.for_s / DAY_S, 3),
        "delay_s": compared.delay_s,
        "telemetry_s": compared.telemetry_s,
        "budget_w": round(outcome.budget_w, 1),
        "brakes": outcome.brakes,
        "peak_share": round(outcome.peak_share, 4),
        "over_s": round(outcome.over_s, 2),
        "breaker_share": round(outcome.breaker_share, 4),
        "limit_changes": outcome.limit_changes,
        "classes": classes,
        "missed_goals": compared.missed(),
        "named": [list(one) for one in outcome.named],
        "cpu_s": round(compared.cpu_s, 2),
    }


def runs_json(done: Done, stopped: str) -> str:
    """All runs of a comparison as JSON. stopped: why it ended early, "" if it did not."""
    record = {"record": 1, "simulated": True, "stopped": stopped or None, "runs": [record_of(*one) for one in done]}
    return json.dumps(record, indent=2) + "\n"


def tables_of(done: Done) -> str:
    """One table for each number of additional servers."""
    return "\n".join(
        _table_of(label, [one for one in done if one[0].trace == label])
        for label in dict.fromkeys(run.trace for run, _ in done)
    )


def _table_of(label: str, done: Done) -> str:
    """One line per policy with the worst of the seeds: for a breaker, the mean is no safeguard."""
    headings = ["policy", "delay s", "seeds", "brakes", "over s", "longest", "breaker", "peak"]
    names = [pool.name for pool in done[0][1].outcome.pools]
    for name in names:
        headings += [f"{name} P50 %", "P99 %", "held %"]
    rows = []
    for policy in dict.fromkeys(run.policy for run, _ in done):
        mine = [compared for run, compared in done if run.policy == policy]
        cells = [policy, f"{mine[0].delay_s:g}", str(len(mine))]
        for figure, form in WORST.items():
            cells.append(format(max(getattr(compared.outcome, figure) for compared in mine), form))
        for name in names:
            cells += [f"{max(compared.slower_pct(name, percent) for compared in mine):+.2f}" for percent in (50, 99)]
            cells.append(f"{max(100 * compared.outcome.of_pool(name).held_share for compared in mine):.2f}")
        cells.append(f"{sum(not compared.missed() for compared in mine)}/{len(mine)}")
        rows.append([*cells, f"{max(compared.cpu_s for compared in mine):.0f}"])
    first = done[0][1].outcome
    days = f"{first.for_s / DAY_S:.3g} days, simulated; worst of the seeds"
    return f"{label} servers ({sum(first.servers)}), {days}\n" + table(
        (*headings, "goals met", "cpu s"), rows, numeric=True
    )


def in_words(run: PolicyRun, compared: ComparedRun) -> str:
    """One finished run in one line of progress."""
    outcome = compared.outcome
    return (
        f"{run.trace} {run.policy} seed {run.seed}: {outcome.brakes} brakes, {outcome.over_s:.1f} s over, "
        f"peak {outcome.peak_share:.3f} of the budget, {compared.cpu_s:.0f} s"
    )


def probe_in_words(probe: Probe) -> str:
    """One simulated size in one line."""
    verdict = "not safe: " + "; ".join(probe.broken) if probe.broken else "safe"
    return f"{probe.servers} servers: {verdict}"


def headroom_in_words(found: Headroom) -> str:
    """Number of additional servers, with margin and limiting condition, in a few lines."""
    if found.more is None:
        return (
            f"Not even the planned row of {found.planned} servers is safe under {found.budget_w / 1000:.1f} kW with "
            f"{found.policy} (simulated): {found.limited_by}.\n"
            f"Margin at the highest 2 s: {found.margin_w / 1000:.1f} kW. Try a larger budget, or fewer servers.\n"
        )
    return (
        f"{found.more} more servers are safe on a row planned for {found.planned} ({found.more / found.planned:+.0%}), "
        f"under {found.policy} (simulated).\n"
        f"Margin: {found.margin_w / 1000:.1f} kW of {found.budget_w / 1000:.1f} kW at the highest 2 s.\n"
        f"The next size is limited by: {found.limited_by}.\n"
        f"Guaranteed without simulation: {found.guaranteed} servers at their lowest clock stay within the budget.\n"
        + "".join(
            f"{name}, {servers} servers: slower by {p50:.1f} % at the median, {p99:.1f} % at the 99th percentile.\n"
            for name, servers, p50, p99 in found.costs
        )
    )


def headroom_json(found: Headroom) -> str:
    """Headroom as JSON, for programs."""
    record = {
        "record": 1,
        "simulated": True,
        "policy": found.policy,
        "planned_servers": found.planned,
        "safe_servers": found.safe,
        "guaranteed_servers": found.guaranteed,
        "budget_w": round(found.budget_w, 1),
        "margin_w": round(found.margin_w, 1),
        "limited_by": found.limited_by,
        "costs": [
            {"pool": name, "servers": servers, "p50_slower_pct": round(p50, 3), "p99_slower_pct": round(p99, 3)}
            for name, servers, p50, p99 in found.costs
        ],
        "probes": [
            {
                "servers": probe.servers,
                "broken": list(probe.broken),
                "seeds": [run.seed for run in probe.runs],
                "peak_share": round(max(run.outcome.peak_share for run in probe.runs), 4),
            }
            for probe in found.probes
        ],
    }
    return json.dumps(record, indent=2) + "\n"
