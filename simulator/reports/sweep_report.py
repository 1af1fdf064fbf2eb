"""HTML reports, each one file that opens from disk, prints and needs no network: the page, and that of a sweep."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.arrays import FloatArray
from simulator.packing.policy_comparison import PolicySummary, Spread
from simulator.reports.charts import STYLES, Chart, charts, dash


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """Column of the table of results."""

    heading: str
    short: str
    """Short heading with unit, for narrow tables; points of arrived demand are implied."""
    unit: str
    values: Callable[[PolicySummary], FloatArray]
    digits: int
    better: Callable[[Sequence[float]], float] | None
    """Choice of the best mean; None where neither more nor less is better."""
    silent_at_zero: bool = False
    """Whether to omit the column where it is zero throughout."""
    main: bool = False
    """Whether to show the column even in a table of few columns."""


NO_FIGURE = "–"

COLUMNS = (
    FigureColumn(
        "Allocated at 100 % arrived",
        "allocated %",
        "% of GPUs",
        lambda s: s.at(s.allocation_pct, 100),
        2,
        max,
        main=True,
    ),
    FigureColumn("Allocated at the end", "at the end %", "% of GPUs", lambda s: s.allocation_pct[:, -1], 2, max),
    FigureColumn(
        "Stranded at 90 % arrived", "stranded %", "% of GPUs", lambda s: s.at(s.stranded_pct, 90), 2, min, main=True
    ),
    FigureColumn(
        "Price of allocated at 100 %", "allocated $/h", "$/h", lambda s: s.at(s.allocated_per_hour, 100), 0, max
    ),
    FigureColumn("Stranded at 90 %", "stranded $/h", "$/h", lambda s: s.at(s.stranded_per_hour, 90), 0, min),
    FigureColumn("Decision, mean", "mean ms", "ms", lambda s: s.decision_mean_ms, 3, min),
    FigureColumn("Decision, 99th percentile", "p99 ms", "ms", lambda s: s.quantile_ms(0.99), 3, min, main=True),
    FigureColumn("Upkeep", "upkeep s", "s", lambda s: s.upkeep_s, 1, min, silent_at_zero=True),
    FigureColumn("Pods not placed", "not placed", "", lambda s: s.unplaced_pods, 0, min, main=True),
)


def number_in_words(value: float, digits: int) -> str:
    """Number with thousands separators; a dash where there is no figure."""
    return f"{value:,.{digits}f}" if np.isfinite(value) else NO_FIGURE


def columns_for(summaries: Sequence[PolicySummary]) -> tuple[FigureColumn, ...]:
    """Columns with content: no dollars without prices, no upkeep where there was none."""

    def has_content(column: FigureColumn) -> bool:
        silent = {NO_FIGURE, number_in_words(0, column.digits)} if column.silent_at_zero else {NO_FIGURE}
        return any(number_in_words(Spread.of(column.values(s)).mean, column.digits) not in silent for s in summaries)

    return tuple(column for column in COLUMNS if has_content(column))


@dataclass(frozen=True, slots=True)
class Trace:
    """Trace that was replayed."""

    name: str
    nodes: int
    gpus: int
    pods: int
    """Number of pods in the list that arrivals are drawn from."""
    source: str
    """Source of the trace: file names, or how it was generated."""
    bound_pct: float | None = None
    """Proven upper bound on the allocation of any policy at 100 % arrived, where one was computed."""


TERMS: Mapping[str, str] = {
    "arrived": "GPU that all pods requested until then, placed or not, as a fraction of the fleet's GPU. "
    "At 100 % a perfect fleet would be exactly full.",
    "allocated": "GPU allocated to running pods, as a fraction of the fleet's GPU or at its price in dollars per hour. "
    "Half a GPU counts as half.",
    "fragment": "Idle GPU that the next pod could not use, in the mean over the expected pods: the node lacks "
    "CPU, enough whole GPUs or the right model, or the free fraction of a GPU is too small. A pod that requests "
    "no GPU can use none, so some fragments remain under any policy.",
    "stranded": "All fragments of the fleet, as a fraction of its GPU or at their price in dollars per hour.",
    "decision": "Time to choose a node and GPUs for one pod, measured in the process of the replay. "
    "Replays in parallel slow each other down.",
    "upkeep": "Work that no decision waits for, such as new prices, over a whole replay. A cluster leaves it to "
    "another process; here it is done between decisions.",
    "not placed": "Pods that fitted nowhere when they arrived. They are dropped and not tried again.",
    "seed": "A number that decides the order of arrivals. The same seed gives every policy the same arrivals, "
    "and gives the same placements again.",
    "sd": "Standard deviation over the seeds; charts show the mean as a line and the range from least to greatest "
    "as a band.",
}


def render_report(
    summaries: Sequence[PolicySummary], traces: Sequence[Trace], facts: tuple[tuple[str, str], ...], stopped: str = ""
) -> str:
    """Report as one HTML document. Policies and traces keep the order of `summaries` and `traces`.

    stopped: why the sweep ended early; empty when it did not.
    """
    by_trace = [(trace, [each for each in summaries if each.trace == trace.name]) for trace in traces]
    return render(
        ReportPage(
            title="Placement replay",
            lead="Pods arrive one by one at a simulated fleet, and a policy places each on arrival. No cluster was "
            "changed.",
            facts=facts,
            sections=tuple(_section(trace, mine) for trace, mine in by_trace if mine),
            terms=TERMS,
            made_by="tonnage simulate placement",
            warning=stopped and f"the sweep ended early ({stopped}); figures cover the finished replays",
        )
    )


HERE = Path(__file__).parent


def rendered(template: str, folder: Path = HERE, **parts: object) -> str:
    """Page from a template in a folder; inserted text is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, HERE]),  # here is the style of all pages
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**parts)


def _section(trace: Trace, summaries: Sequence[PolicySummary]) -> "PageSection":
    columns = columns_for(summaries)
    best = [_best(column, summaries) for column in columns]
    policies = [summary.policy for summary in summaries]
    caption = "Mean over seeds ± standard deviation; the best of a column is shaded."
    if trace.bound_pct is not None:
        caption += f" No policy can allocate more than {trace.bound_pct:.2f} % at 100 % arrived (proven)."
    rows: tuple[tuple[str | Cell, ...], ...] = tuple(
        (s.policy, str(len(s.seeds)), *(_cell(c, s, b) for c, b in zip(columns, best, strict=True))) for s in summaries
    )
    tables = [PageTable(caption, ("Policy", "Seeds", *columns), rows)]
    # Reasons, the most frequent first, with the mean number of pods under each policy.
    reasons = {reason for s in summaries for reason in s.unplaced}
    means = {r: [float(np.mean(s.unplaced[r])) if r in s.unplaced else 0.0 for s in summaries] for r in reasons}
    if reasons:
        caption = "Pods that found no place, by the missing resource; mean number over seeds."
        ordered = sorted(reasons, key=lambda reason: (-sum(means[reason]), reason))
        counts = tuple((reason, *(f"{mean:,.1f}" for mean in means[reason])) for reason in ordered)
        tables.append(PageTable(caption, ("Missing resource", *policies), counts))
    return PageSection(
        title=trace.name,
        lead=f"{trace.nodes:,} nodes, {trace.gpus:,} GPUs; arrivals drawn from {trace.pods:,} pods. {trace.source}",
        headline=headline(trace, summaries),
        tables=tuple(tables),
        charts=charts(summaries),
        legend=legend_of(policies),
    )


def _best(column: FigureColumn, summaries: Sequence[PolicySummary]) -> str | None:
    """Best mean as it is printed: means that differ by less than a digit are equal, and among equals none is best."""
    means = [Spread.of(column.values(s)).mean for s in summaries]
    printed = {number_in_words(mean, column.digits) for mean in means}
    if column.better is None or len(printed) < 2 or not all(np.isfinite(means)):
        return None
    return number_in_words(column.better(means), column.digits)


def _cell(column: FigureColumn, summary: PolicySummary, best: str | None) -> "Cell":
    spread = Spread.of(column.values(summary))
    text = number_in_words(spread.mean, column.digits)
    return Cell(text, number_in_words(spread.sd, column.digits) if np.isfinite(spread.sd) else "", text == best)


def headline(trace: Trace, summaries: Sequence[PolicySummary]) -> str:
    """Result in a sentence: the policy that allocates most GPUs at 100 % arrived, and its lead."""
    means = {s.policy: Spread.of(s.at(s.allocation_pct, 100)).mean for s in summaries}
    ranked = sorted((mean, policy) for policy, mean in means.items() if np.isfinite(mean))[::-1]
    if not ranked:
        return "No replay reached the point at which demand equals the fleet."
    (most, winner), others = ranked[0], ranked[1:]
    sentence = f"{winner} allocates {most:.1f} % of the GPUs when demand equals the fleet"
    gains = [f"{(most - mean) / 100 * trace.gpus:,.0f} more than {policy}" for mean, policy in others]
    return f"{sentence}: {', '.join(gains)} (of {trace.gpus:,})." if gains else f"{sentence}."


@dataclass(frozen=True, slots=True)
class Cell:
    """Figure of a table with its deviation."""

    text: str
    sd: str
    best: bool


@dataclass(frozen=True, slots=True)
class PageTable:
    caption: str
    columns: tuple[str | FigureColumn, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    """Cells of each row; the first names the row."""


@dataclass(frozen=True, slots=True)
class Legend:
    """Legend of a line of the charts."""

    name: str
    colour: str
    """Colour of the page's style sheet, such as `var(--policy-0)`."""
    dashes: str


def legend_of(names: Iterable[str]) -> tuple[Legend, ...]:
    """Legend of lines in the order in which charts draw them."""
    return tuple(
        Legend(name, f"var(--policy-{n % STYLES})", " ".join(f"{2 * d:g}" for d in dash(n)[1] or ()))
        for n, name in enumerate(names)
    )


@dataclass(frozen=True, slots=True)
class PageSection:
    """Part of a page: tables, and charts with their common legend."""

    tables: tuple[PageTable, ...]
    charts: tuple[Chart, ...]
    legend: tuple[Legend, ...] = ()
    title: str = ""
    lead: str = ""
    headline: str = ""
    """Result in a sentence."""


@dataclass(frozen=True, slots=True)
class ReportPage:
    """Content of the page, from top to bottom."""

    title: str
    lead: str
    """One or two sentences: the subject of the page, and that it is simulated."""
    facts: tuple[tuple[str, str], ...]
    """(word, value): when, where and how it was made; enough to repeat it."""
    sections: tuple[PageSection, ...]
    terms: Mapping[str, str]
    made_by: str
    """Command that makes such pages."""
    headline: str = ""
    """Result of all sections in a sentence."""
    warning: str = ""
    log: PageTable | None = None
    """Long table below the charts that is folded until somebody opens it."""


def render(page: ReportPage) -> str:
    """Page as one HTML document."""
    return rendered("page.html.j2", page=page)
