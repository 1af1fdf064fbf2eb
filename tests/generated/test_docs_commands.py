"""Docs: every command that a page names exists, with its options."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.main import tonnage
from tests.generated.test_docs_paths import FOLDERS, PAGES, ROOT, ids

FENCED = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
RULES = re.findall(r"^([\w -]+):(?!=)", MAKEFILE, re.MULTILINE)
TARGETS = frozenset(target for rule in RULES for target in rule.split())
MODULE = re.compile(rf"python -m ((?:{'|'.join(FOLDERS)})(?:\.\w+)*)")
TONNAGE = re.compile(r"(?:^|\| |&& |\(|kubectl )tonnage((?: +[^\s#;&|)]+(?:\|[a-z|]+)?)+)")


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_module_and_target_that_a_page_runs_exists(page: Path) -> None:
    code = list(_code(page))
    modules = {name for line in code for name in MODULE.findall(line)}
    targets = {name for line in code for name in re.findall(r"^make ([a-z][\w-]*)", line)}

    assert {name for name in modules if not _is_runnable(name)} == set()
    assert targets - TARGETS == set()


def test_every_module_that_the_makefile_runs_exists() -> None:
    named = re.findall(r"python -m ([\w.]+)", MAKEFILE)
    own = {name for name in named if name.partition(".")[0] in FOLDERS}

    assert {"tests.generated.crd_files", "deploy.chart_files", "benchmarks"} <= own
    assert {name for name in own if not _is_runnable(name)} == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_verb_of_tonnage_on_a_page_exists_with_its_options(page: Path) -> None:
    named = {f"tonnage{words}" for line in _code(page) for words in TONNAGE.findall(line)}

    assert [wrong for each in sorted(named) for wrong in _mistakes(each)] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert list(_mistakes("tonnage power state")) == ["tonnage power state: there is no state"]
    assert list(_mistakes("tonnage power explain|state")) == ["tonnage power explain|state: there is no state"]
    assert list(_mistakes("tonnage plan -f x --policies fgd")) == ["tonnage plan -f x --policies fgd: no --policies"]
    assert list(_mistakes("tonnage plan -f x -- --policies fgd")) == []
    assert list(_mistakes("tonnage simulate day -f x --report y.html")) == []
    assert list(_mistakes("tonnage run --json-fd 3 -- pytest --quiet")) == []


def _code(page: Path) -> Iterator[str]:
    """Commands of a page: lines of its blocks, without the output in them, and its inline code."""
    text = page.read_text(encoding="utf-8")
    for language, block in FENCED.findall(text):
        if language != "text":
            lines = block.replace("\\\n", " ").splitlines()
            yield from (line.removeprefix("$ ") for line in lines if language != "console" or line.startswith("$ "))
    prose = FENCED.sub("", text)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))


def _is_runnable(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    file = path.with_suffix(".py")
    return (path / "__main__.py").exists() or (file.exists() and "__main__" in file.read_text(encoding="utf-8"))


def _mistakes(line: str) -> Iterator[str]:
    """Verbs and options of a command line that do not exist. `up|down` names several verbs."""
    command: click.Command = tonnage
    words = line.partition(" -- ")[0].split()[1:]  # after it come the words of another command
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z|-]*", words[0]):
        found = {name: command.get_command(click.Context(command), name) for name in words.pop(0).split("|")}
        if missing := [name for name, each in found.items() if each is None]:
            yield f"{line}: there is no {', '.join(missing)}"
            return
        command = next(each for each in found.values() if each is not None)
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    own = words[: words.index("--")] if "--" in words else words  # the rest is a command of its own
    named = (word.partition("=")[0].strip("[]()") for word in own if word.startswith("--"))
    yield from (f"{line}: no {option}" for option in named if option not in options)
