"""Figures: every section of the benchmarks' page says what it was measured on, and those of the operator come first."""

import re
from itertools import pairwise

from tests.generated.test_docs_paths import ROOT

PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[.*?\]\(([^)]*)\) \|.*\| ([^|]+) \|$", re.MULTILINE)
"""A row of the page's table of contents: link, and what is measured."""
SECTION = re.compile(r"^## (.+)\n\n(?:\*Measured on: (.+)\.\*\n)?", re.MULTILINE)
WITHOUT_KIND = ("data", "at-a-glance", "sections")
"""Sections without figures of their own, and the one with figures of both kinds."""
KINDS = ("operator", "engine")


def test_every_section_says_below_its_heading_what_the_table_of_contents_says() -> None:
    rows = {link.removeprefix("#"): _plain(words) for link, words in ROW.findall(PAGE) if link.startswith("#")}

    sections = {_anchor(heading): words for heading, words in SECTION.findall(PAGE)}
    assert rows == {anchor: words for anchor, words in sections.items() if anchor not in WITHOUT_KIND}


def test_every_figure_is_of_the_operator_or_of_the_engine_and_the_operators_come_first() -> None:
    in_page = [_plain(words) for _, words in ROW.findall(PAGE)]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \|$", _at_a_glance(), re.MULTILINE)
    at_a_glance = [_plain(words) for words in rows]

    for found in (in_page, at_a_glance):
        kinds = [next((kind for kind in KINDS if words.startswith(kind)), words) for words in found]
        assert set(kinds) == set(KINDS), kinds
        assert all((before, after) != ("engine", "operator") for before, after in pairwise(kinds)), kinds


def _at_a_glance() -> str:
    """Rows of the page's first table, without its head."""
    return PAGE.partition("| benchmark | measured on | result |\n|---|---|---|\n")[2].partition("\n\n")[0]


def _plain(words: str) -> str:
    return words.replace("*", "").strip()


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
