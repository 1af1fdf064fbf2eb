"""Report of a power simulation: each policy's draw against the budget, and its cost in latency. One HTML file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cluster.arrays import FloatArray
from simulator.power.policies import PERIOD_S
from simulator.power.requests import DAY_S
from simulator.power.study import ComparedRun
from simulator.reports.charts import INK, Chart, colour, dash, drawn
from simulator.reports.sweep_report import PageSection, PageTable, ReportPage, legend_of, render
from simulator.sweep.runner import PolicyRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Done = Sequence[tuple[PolicyRun, ComparedRun]]
HOUR_S = 3600.0
POINTS = 700
"""Points of a line: each is the highest draw of its interval, so that no peak is lost."""


COLUMNS = ("brakes", "s over budget", "peak / budget")

TERMS = {
    "budget": "Power that may be drawn at the row's breaker continuously. It is computed so that the row as planned "
    "peaks at the stated fraction of it, or is given.",
    "brake": "The hardware power brake: triggered by a mean draw over 2 s at the budget, acts after 5 s on all GPUs, "
    "holds for 60 s. A safe row never triggers it.",
    "s over budget": "Time during which the row drew more than its budget, exact to the event.",
    "P50 %, P99 %": "Increase of the latency of a pool of servers (of a job: of the time of a step) at its median and "
    "its 99th percentile, against the same work on the same servers with unlimited power.",
    "held %": "Fraction of the time of a pool's servers during which they worked slower than at full clock.",
    "worst of the seeds": "Each figure is that of the seed for which it is worst: means do not protect a breaker.",
}


def render_power(done: Done, facts: tuple[tuple[str, str], ...], conclusion: str = "", stopped: str = "") -> str:
    """The page. Sizes and policies keep the order of the runs.

    conclusion: the result of all runs together, where they answer one question. stopped: why they ended early.
    """
    labels = dict.fromkeys(run.trace for run, _ in done)
    return render(
        ReportPage(
            title="Power of a row",
            lead="A pretend row of inference servers serves the same requests under each policy. No machine was "
            "touched.",
            facts=facts,
            headline=conclusion,
            sections=tuple(_section(label, [one for one in done if one[0].trace == label]) for label in labels),
            terms=TERMS,
            made_by="tonnage power headroom" if conclusion else "tonnage simulate power",
            warning=stopped and f"the runs ended early ({stopped}); figures cover the runs that were finished",
        )
    )


def _section(label: str, done: Done) -> PageSection:
    policies = list(dict.fromkeys(run.policy for run, _ in done))
    mine = {policy: [compared for run, compared in done if run.policy == policy] for policy in policies}
    first = done[0][1].outcome
    worst = [max((run.outcome for run in runs), key=lambda outcome: outcome.peak_share) for runs in mine.values()]
    draws = [outcome.row_w / outcome.budget_w for outcome in worst]
    name = f"power-{label}"
    rows = tuple((policy, *_cells(runs)) for policy, runs in mine.items())
    costs = tuple(f"{pool.name} {what}" for pool in first.pools for what in ("P50 %", "P99 %", "held %"))
    return PageSection(
        title=f"{label} servers: {sum(first.servers)} under a budget of {first.budget_w / 1000:.1f} kW",
        headline=_headline(mine),
        tables=(PageTable("The worst of the seeds.", ("Policy", *COLUMNS, *costs), rows),),
        charts=(
            Chart(
                "Draw against budget",
                "Highest draw of the row over 2 s in each interval, for the seed with the highest peak. The thin line "
                "is the budget; a brake holds the draw down each time it is reached.",
                drawn(f"{name}-time", lambda axes: _over_time(axes, draws)),
            ),
            Chart(
                "Duration of draws",
                "Fraction of the time (logarithmic) during which the row drew at least this much. Further left at the "
                "budget is safer; further right below it is more work done under the same breaker.",
                drawn(f"{name}-duration", lambda axes: _duration(axes, draws)),
            ),
        ),
        legend=legend_of(policies),
    )


def _headline(mine: dict[str, list[ComparedRun]]) -> str:
    kept = [policy for policy, runs in mine.items() if not any(compared.missed() for compared in runs)]
    if not kept:
        return "No policy met every goal under every seed."
    return f"Without a brake and within POLCA's latency goals under every seed: {', '.join(kept)}."


def _cells(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    outcomes = [compared.outcome for compared in runs]
    cells = [
        str(max(outcome.brakes for outcome in outcomes)),
        f"{max(outcome.over_s for outcome in outcomes):.1f}",
        f"{max(outcome.peak_share for outcome in outcomes):.3f}",
    ]
    for name in [pool.name for pool in outcomes[0].pools]:
        cells += [f"{max(compared.slower_pct(name, percentile) for compared in runs):+.2f}" for percentile in (50, 99)]
        cells.append(f"{max(100 * outcome.of_pool(name).held_share for outcome in outcomes):.2f}")
    return tuple(cells)


def _over_time(axes: "Axes", draws: Sequence[FloatArray]) -> None:
    longest_s = max(len(draw) for draw in draws) * PERIOD_S
    unit, unit_s = ("days", DAY_S) if longest_s >= 2 * DAY_S else ("hours", HOUR_S)
    for number, draw in enumerate(draws):
        stretch = max(1, len(draw) // POINTS)
        highest = draw[: len(draw) // stretch * stretch].reshape(-1, stretch).max(axis=1)
        times = (np.arange(len(highest)) + 0.5) * stretch * PERIOD_S / unit_s
        axes.plot(times, 100 * highest, color=colour(number), linestyle=dash(number), linewidth=1.1)
    axes.axhline(100, color=INK, linewidth=0.8, alpha=0.6)
    axes.set_xlim(0, longest_s / unit_s)
    axes.set_xlabel(unit)
    axes.set_ylabel("draw, % of the budget")


def _duration(axes: "Axes", draws: Sequence[FloatArray]) -> None:
    for number, draw in enumerate(draws):
        falling = np.sort(draw)[::-1]
        share = (np.arange(len(falling)) + 1) / len(falling)
        kept = np.unique(np.geomspace(1, len(falling), POINTS).astype(np.int64)) - 1
        axes.plot(100 * share[kept], 100 * falling[kept], color=colour(number), linestyle=dash(number))
    axes.axhline(100, color=INK, linewidth=0.8, alpha=0.6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:g}")
    axes.set_xlabel("time, %")
    axes.set_ylabel("draw at least, % of the budget")
