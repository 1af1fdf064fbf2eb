"""Docs: every link resolves, and every file that is named exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = tuple(
    sorted(
        each.name for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith(".") and each.name != "out"
    )
)
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for name in ("docs", "examples", "helm") for page in (ROOT / name).rglob("*.md"))]
)
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*?\w+\.(?:py|yaml|md|j2|json|tpl)\b")
GENERATED = frozenset({"deploy/chart", "out"})
"""Written by a command, not committed."""


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [link for link in _links(page) if not _leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {path.name for path in SOURCES}
    bare = {name for name in re.findall(r"`([a-z_]+\.py)`", text) if name not in names}

    assert _missing(text) | bare == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_test_and_claim_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`((?:test|assert)_\w+)`", page.read_text(encoding="utf-8")))
    tests = (
        [path.read_text(encoding="utf-8") for path in SOURCES if path.is_relative_to(ROOT / "tests")] if named else []
    )

    assert {name for name in named if not any(f"def {name}(" in text for text in tests)} == set()


def test_every_file_that_a_docstring_or_comment_names_exists() -> None:
    missing = {f"{ids(path)}: {name}" for path in SOURCES for name in _missing(path.read_text(encoding="utf-8"))}

    assert {each for each in missing if not each.startswith("tests/")} == set()


def _missing(text: str) -> set[str]:
    return {name for name in PATH.findall(text) if not (ROOT / name).exists() and not _is_generated(name)}


def _is_generated(name: str) -> bool:
    return any(name.startswith(folder) for folder in GENERATED)


def _links(page: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return (
        link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link and not link.startswith("mailto:")
    )


def _leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in _anchors(target)


def _anchors(page: Path) -> set[str]:
    """Headings as GitHub names them in links."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
