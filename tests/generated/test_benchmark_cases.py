"""The benchmarks' page lists every case with its caption, as `python -m benchmarks list --markdown` prints it."""

from benchmarks.__main__ import markdown_table
from tests.generated.test_docs_paths import ROOT

BEGIN, END = "<!-- python -m benchmarks list --markdown -->\n\n", "\n<!-- end -->"


def test_the_page_has_the_table_of_cases() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")

    assert page.partition(BEGIN)[2].partition(END)[0] == markdown_table()
