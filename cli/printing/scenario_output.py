"""Results of what-if scenarios: a table for people, JSON for programs, an HTML report."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from cli.inputs.runs import report_facts
from cli.inputs.sweeps import WhatIfResult, scenario_label
from cli.printing.plan_figures import figure, money
from cli.printing.tables import table
from simulator.reports.charts import Chart, colour, dash, drawn
from simulator.reports.sweep_report import PageSection, PageTable, ReportPage, legend_of, render
from simulator.scenarios import Scenario, ScenarioAnswer, change_per_hour, survives

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = (
    "SCENARIO",
    "$/HOUR",
    "$ CHANGE",
    "$ BOUND",
    "GPUS ALLOCATED",
    "$ IDLE",
    "RUNNING",
    "UNPLACED",
    "REFUSED",
)
CHANGE = "Against the unchanged fleet, of services planned in both: a refused service saves nothing."
TERMS = {
    "$ per hour": "Cost of all instances of all services.",
    "$ change": CHANGE,
    "bound": "Proven lower bound on the cost of the services, for any plan.",
    "allocated": "GPUs that pods hold after the plan, of all GPUs of the fleet; half a GPU counts as half.",
    "idle": "Cost of the GPUs that no pod holds.",
    "unplaced": "Pods that stay pending after the plan.",
    "refused": "Services without a plan that meets the SLO; they stay unchanged.",
}


def as_table(result: WhatIfResult) -> str:
    """Table with one line per scenario, first the unchanged fleet."""
    today = result.swept.done[0][1]
    is_comparable = all(set(answer.refused) == set(today.refused) for _, answer in result.swept.done)
    note = "" if is_comparable else f"$ CHANGE: {CHANGE[0].lower()}{CHANGE[1:]}\n"
    return table(COLUMNS, _rows(result)) + note + "".join(f"{line}\n" for line in lost_lines(result))


def _rows(result: WhatIfResult) -> list[tuple[str, ...]]:
    today = result.swept.done[0][1]
    several = _several(result)
    return [
        (
            _name(scenario, several),
            money(answer.services_per_hour),
            f"{change_per_hour(answer, today):+,.2f}",
            money(answer.bound_per_hour),
            f"{answer.gpus_used:,.1f} of {answer.gpus:,}",
            money(answer.idle_per_hour),
            str(answer.running),
            str(answer.unplaced),
            ", ".join(answer.refused) or "-",
        )
        for scenario, answer in result.swept.done
    ]


def lost_lines(result: WhatIfResult) -> list[str]:
    """What the fleet does not survive, and how many losses it does; no line where nothing was to be lost."""
    answers = dict(result.swept.done)
    found: list[str] = []
    losses = [scenario for scenario in answers if scenario.lost]
    for scenario in losses:
        before, after = answers.get(replace(scenario, lost=None)), answers[scenario]
        if before and not survives(after, before):
            more = sorted(set(after.refused) - set(before.refused))
            words = [f"{after.unplaced - before.unplaced:+d} pods unplaced", *(f"{name} refused" for name in more)]
            found.append(f"  {scenario_label(scenario)}: {', '.join(words)}")
    said = f"Every pod and service keeps a place in {len(losses) - len(found)} of {len(losses)} losses."
    return [f"{said} Not in:" if found else said, *found] if losses else []


def _several(result: WhatIfResult) -> tuple[bool, bool]:
    """Whether policies, and whether seeds, differ between scenarios, so that names must include them."""
    return len({s.policy for s in result.scenarios}) > 1, len({s.seed for s in result.scenarios}) > 1


def _name(scenario: Scenario, several: tuple[bool, bool]) -> str:
    policy = f", {scenario.policy}" if several[0] else ""
    return scenario_label(scenario) + policy + (f", seed {scenario.seed}" if several[1] else "")


def as_json(result: WhatIfResult) -> str:
    """Stable JSON: the same input gives the same text."""
    record = {
        "record": 1,
        "simulated": True,
        "stopped": result.swept.stopped or None,
        "scenarios": [{"scenario": _plain(scenario), **_figures(answer)} for scenario, answer in result.swept.done],
        "missing": [_plain(scenario) for scenario in result.swept.missing],
    }
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def _figures(answer: ScenarioAnswer) -> dict[str, object]:
    cost_of = {name: figure(cost) for name, cost in sorted(answer.cost_of.items())}
    plain = asdict(answer) | {"cost_of": cost_of}
    return {name: figure(value) if isinstance(value, int | float) else value for name, value in plain.items()}


def _plain(scenario: Scenario) -> dict[str, object]:
    return asdict(scenario) | {"prices": dict(scenario.prices), "nodes": dict(scenario.nodes)}


def headline(result: WhatIfResult) -> str:
    """The unchanged fleet, and the range of what the scenarios cost against it."""
    today, several = result.swept.done[0][1], _several(result)
    refused = f", {', '.join(today.refused)} refused" if today.refused else ""
    said = (
        f"The unchanged fleet: services cost ${money(today.services_per_hour)} per hour; "
        f"{today.running} pods run, {today.unplaced} unplaced{refused}."
    )
    said = " ".join((said, *lost_lines(result)))
    changes = sorted(
        (change_per_hour(answer, today), _name(scenario, several)) for scenario, answer in result.swept.done[1:]
    )
    if not changes:
        return said
    ends = [_change(*changes[0])] if len(changes) == 1 else [_change(*changes[0]), _change(*changes[-1])]
    return f"{said} The services planned in both cost {' to '.join(ends)}."


def _change(dollars: float, name: str) -> str:
    return f"${money(abs(dollars))} {'less' if dollars < 0 else 'more'} ({name})"


def as_html(result: WhatIfResult) -> str:
    """HTML report with the table and its charts."""
    rows = tuple((name.replace(" × ", "\u00a0×\u00a0"), *figures) for name, *figures in _rows(result))
    lines = _lines_of(result)
    return render(
        ReportPage(
            title="What if",
            lead="Plans for variations of a fleet. No cluster was changed.",
            facts=report_facts(result.started_at, result.wall_s),
            headline=headline(result),
            sections=(
                PageSection(
                    (PageTable("One line per scenario, first the unchanged fleet.", COLUMNS, rows),),
                    tuple(_charts(result)),
                    legend_of(lines) if len(lines) > 1 else (),
                ),
            ),
            terms=TERMS,
            made_by="tonnage whatif",
            warning=result.swept.stopped and f"the sweep ended early ({result.swept.stopped})",
        )
    )


def _lines_of(result: WhatIfResult) -> dict[str, list[tuple[float, ScenarioAnswer]]]:
    """Chart lines by name: scenarios that differ only in demand, as (demand, answer); empty if demand never varies."""
    if len({scenario.demand for scenario, _ in result.swept.done}) < 2:
        return {}
    several = _several(result)
    lines: dict[str, list[tuple[float, ScenarioAnswer]]] = {}
    for scenario, answer in result.swept.done:
        lines.setdefault(_name(replace(scenario, demand=1.0), several), []).append((scenario.demand, answer))
    return {name: sorted(line, key=lambda point: point[0]) for name, line in lines.items() if len(line) > 1}


def _charts(result: WhatIfResult) -> Iterator[Chart]:
    """Cost of the services that every scenario plans, so that a refused one saves nothing; other figures that vary."""
    answers = [answer for _, answer in result.swept.done]
    common = set.intersection(*(set(answer.cost_of) for answer in answers))
    left_out = sorted({name for answer in answers for name in answer.cost_of} - common)
    caption = f"Dollars per hour of {'the services that every scenario plans' if left_out else 'all services'}."
    without = f" Not in all: {', '.join(left_out)}." if left_out else ""
    yield _chart(
        result, "Cost", "dollars per hour", caption, lambda a: sum(a.cost_of[name] for name in common), more=without
    )
    if len({answer.unplaced for answer in answers}) > 1:
        said = "Pods that stay pending after the plan."
        yield _chart(result, "Unplaced pods", "pods", said, lambda a: a.unplaced)
    yield _chart(result, "Allocated GPUs", "GPUs", "GPUs that pods hold after the plan.", lambda a: a.gpus_used)


def _chart(
    result: WhatIfResult, title: str, unit: str, caption: str, value: Callable[[ScenarioAnswer], float], more: str = ""
) -> Chart:
    """unit: name of the axis. more: what follows the caption."""
    lines = _lines_of(result)

    def draw_lines(axes: "Axes") -> None:
        for number, line in enumerate(lines.values()):
            along, up = np.array([(demand, value(answer)) for demand, answer in line]).T
            axes.plot(along, up, color=colour(number), linestyle=dash(number), marker="o", markersize=4)
        axes.set_ylim(bottom=0, top=1.1 * axes.dataLim.ymax or 1)
        axes.set_xlabel("demand, multiple of today's")
        axes.set_ylabel(unit)

    def draw_bars(axes: "Axes") -> None:
        names = [_name(scenario, _several(result)) for scenario, _ in result.swept.done]
        axes.barh(np.arange(len(names)), [value(answer) for _, answer in result.swept.done], color=colour(0))
        axes.set_yticks(np.arange(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(unit)

    by, draw = ("demand", draw_lines) if lines else ("scenario", draw_bars)
    return Chart(title, f"{caption} By {by}.{more}", drawn(title, draw))
