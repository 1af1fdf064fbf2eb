"""HTML page of a result, as one file that opens from disk, prints, and needs no network."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.reports.charts import Chart


@dataclass(frozen=True, slots=True)
class PageTable:
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells of each row; the first names the row."""


@dataclass(frozen=True, slots=True)
class Legend:
    """Legend of a line of the charts."""

    name: str
    colour: str
    """Colour of the page's style sheet, such as `var(--policy-0)`."""
    dashes: str


@dataclass(frozen=True, slots=True)
class Page:
    """Content of the page, from top to bottom."""

    title: str
    lead: str
    """One or two sentences: the subject of the page, and that it is simulated."""
    facts: tuple[tuple[str, str], ...]
    """(word, value): when, where and how it was made; enough to repeat it."""
    headline: str
    """Result in a sentence."""
    tables: tuple[PageTable, ...]
    charts: tuple[Chart, ...]
    terms: Mapping[str, str]
    made_by: str
    """Command that makes such pages."""
    legend: tuple[Legend, ...] = ()
    warning: str = ""
    log: PageTable | None = None
    """Long table below the charts that is folded until somebody opens it."""


def render(page: Page) -> str:
    """Page as one HTML document."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(page=page)
