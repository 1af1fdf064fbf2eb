"""The report is one self-contained file."""

import re
from html.parser import HTMLParser

import pytest

from simulator.reports.sweep_report import Trace, headline, render_report
from tests.builders.summaries import summary

TRACE = Trace("default", nodes=1213, gpus=6212, pods=8152, source="Generated.", bound_pct=96.89)
COMMAND = "tonnage simulate placement --seeds 42-44 <&>"
ABOUT = (
    ("ran", "2026-01-02 03:04 UTC, 12.3 s"),
    ("command", COMMAND),
    ("seeds", "42, 43, 44"),
    ("machine", "two cores"),
    ("prices", "T4 $0.35"),
)


class Page(HTMLParser):
    """Collects what a browser would fetch or run, ids, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.fetched += [value for name, value in attrs if name in ("src", "href") and value and value[0] != "#"]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def html() -> str:
    return render_report([summary("tonnage", 3.7), summary("fgd", 4.8)], [TRACE], ABOUT)


def test_the_report_needs_no_network(html: str) -> None:
    page = Page(html)

    assert page.fetched == []
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert not re.search(r"https?://|@import|url\((?!#)", html)


def test_each_policy_has_a_row_and_an_entry_in_the_legend(html: str) -> None:
    for policy in ("tonnage", "fgd"):
        assert re.search(rf'<th scope="row">.*?{policy}</th>', html)
        assert re.search(rf"<li>.*?{policy}</li>", html)
    assert "87.86" in Page(html).text  # mean of tonnage at 100 % arrived in this made-up sweep


def test_ids_are_unique_so_that_charts_do_not_borrow_from_each_other(html: str) -> None:
    ids = Page(html).ids

    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', html)) <= {(i, "") for i in ids} | {("", i) for i in ids}


def test_the_report_names_its_runs_and_that_they_were_simulated(html: str) -> None:
    text = Page(html).text

    assert COMMAND in text  # escaped in the source, as written on the page
    assert all(word in text for word in ("simulated", "42, 43, 44", "two cores", "2026-01-02", "96.89 %", "T4 $0.35"))


def test_charts_follow_the_page_in_light_dark_and_print(html: str) -> None:
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert "var(--policy-1)" in html
    assert "#0101" not in html  # no stand-in colour is left


def test_the_same_sweep_gives_the_same_report(html: str) -> None:
    assert render_report([summary("tonnage", 3.7), summary("fgd", 4.8)], [TRACE], ABOUT) == html


def test_the_headline_counts_gpus() -> None:
    # At 100 % arrived: tonnage 70 + 26.3 × (1 - exp(-30/26.3)) = 87.9, seeds 0.1 apart; the report's own table says so.
    words = headline(TRACE, [summary("tonnage", 3.7), summary("fgd", 4.8)])

    assert words.startswith("tonnage allocates 87.9 % of the GPUs")
    assert "more than fgd (of 6,212)" in words


def test_without_prices_no_dollar_is_shown() -> None:
    html = render_report([summary("fgd", priced=False)], [TRACE], ABOUT)

    assert "$/h" not in html
    assert "Stranded GPUs in dollars" not in html


def test_the_best_figure_is_marked_unless_all_are_equal() -> None:
    rivals = [summary("tonnage", 3.7), summary("fgd", 4.8)]
    equals = [summary("fgd"), summary("bestfit")]

    # tonnage leads in each of the 9 columns that have a better and a worse: two of allocation, two of stranded GPU,
    # dollars allocated, two of decision time, upkeep, pods not placed. Nothing moved, so there is no such column.
    assert render_report(rivals, [TRACE], ABOUT).count('class="best"') == 9
    assert render_report(equals, [TRACE], ABOUT).count('class="best"') == 0


def test_one_seed_has_no_deviation() -> None:
    html = render_report([summary("fgd", seeds=1)], [TRACE], ABOUT)

    assert "±" not in html.replace("Mean over seeds ± standard deviation", "")
    assert "nan" not in Page(html).text.lower()


def test_a_stopped_sweep_is_reported_as_incomplete() -> None:
    assert "Not complete" in render_report([summary("fgd")], [TRACE], ABOUT, stopped="interrupted")
