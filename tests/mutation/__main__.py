"""Breaks the rules of the safety code one by one, and counts how many the fast tests notice.

    python -m tests.mutation [--only PATTERN] [--jobs N]

Exits 1 below 95 %. No library: those generate thousands of mutations by syntax, and a person must sort out which mean
anything; here each of a hundred is one rule of the domain, run against only the tests that are there to hold it.
"""

import argparse
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutation.forked_pytest import run
from tests.mutation.mutations import ROOT, Mutation, mutated, mutations, places

LEAST_KILLED = 0.95
TIMEOUT_S = 300.0
"""A mutation whose tests do not end within this time counts as killed; the slowest sound run takes a tenth of it."""
PYTEST = (
    *("-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:unraisableexception"),
    *("-p", "tests.without_ray", "-p", "_hypothesis_pytestplugin", "--hypothesis-profile=mutation"),
)
"""Without the check of what a failed test left open: it ends pytest before it says that the test failed."""
NO_OTHER_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Short runs start faster without them."""
WORDS = ("killed", "survived", "not run", "error")
FAILED, NOTHING_RUN = 1, 5
"""Exit statuses of pytest."""


@dataclass(frozen=True, slots=True)
class Verdict:
    mutation: Mutation
    word: str
    """`killed`; `survived`; `not run` when no test runs the line; `error` when pytest itself failed."""
    seconds: float
    printed: str = ""
    """End of what pytest printed, where it failed itself."""


class Trees:
    """Temporary copies of the working tree, one for each job."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._free: queue.Queue[Path] = queue.Queue()
        for job in range(jobs):
            self._free.put(_copy(folder / str(job)))

    def judge(self, mutation: Mutation) -> Verdict:
        tree, began_s = self._free.get(), time.monotonic()
        try:
            word, printed = _judged(tree, mutation)
            return Verdict(mutation, word, time.monotonic() - began_s, printed)
        finally:
            self._free.put(tree)

    def failures(self, tests: Sequence[str]) -> str:
        """What fails of these tests without any mutation, which would then seem to kill every one; usually nothing."""
        tree = self._free.get()
        try:
            status, words = _pytest(tree, tests)
            return "" if status == 0 else words
        finally:
            self._free.put(tree)


def _copy(tree: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    return tree


def _judged(tree: Path, mutation: Mutation) -> tuple[str, str]:
    file = tree / mutation.file
    source = file.read_text(encoding="utf-8")
    try:
        _write(file, mutated(mutation, source))
        status, words = _pytest(tree, mutation.tests)
        if status in (0, NOTHING_RUN):
            return ("survived" if _is_reached(tree, mutation, source) else "not run"), ""
        return ("killed", "") if status in (FAILED, None) else ("error", f"pytest ended with {status}: {words}")
    finally:
        _write(file, source)


def _write(file: Path, source: str) -> None:
    """Writes a module and removes its bytecode, which Python compares by size and second only."""
    file.write_text(source, encoding="utf-8")
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _is_reached(tree: Path, mutation: Mutation, source: str) -> bool:
    span = places(mutation, source)[0]
    first = source.count("\n", 0, span.start) + 1
    last = first + mutation.new.count("\n")
    answer = tree / "reached"
    answer.unlink(missing_ok=True)
    _pytest(
        tree, mutation.tests, "-p", "tests.mutation.reached", REACHED=f"{tree / mutation.file}:{first}:{last}:{answer}"
    )
    return answer.exists()


def _pytest(tree: Path, tests: Sequence[str], *more: str, **environment: str) -> tuple[int | None, str]:
    """Its exit status, None when it did not end in time; and the end of what it printed."""
    return run(tree, (*PYTEST, *more, *tests), NO_OTHER_PLUGINS | {"PYTHONPATH": str(tree)} | environment, TIMEOUT_S)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    options.add_argument("--only", default="", metavar="PATTERN", help="only rules whose `file: text` has it")
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    chosen = [each for each in mutations() if re.search(given.only, f"{each.file}: {each.rule}")]
    for each in chosen:
        mutated(each, (ROOT / each.file).read_text(encoding="utf-8"))  # an anchor that is gone ends this at once
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        verdicts = _run(Trees(Path(folder), given.jobs), chosen, given.jobs)
    return _print(verdicts, time.monotonic() - began_s)


def _run(trees: Trees, chosen: Sequence[Mutation], jobs: int) -> list[Verdict]:
    with ThreadPoolExecutor(jobs) as pool:
        tests = sorted({test for each in chosen for test in each.tests})
        parts = [part for part in (tests[job::jobs] for job in range(jobs)) if part]
        if failures := "".join(pool.map(trees.failures, parts)):
            sys.exit(f"tests fail without any mutation:\n{failures}")
        verdicts = []
        for number, done in enumerate(as_completed([pool.submit(trees.judge, each) for each in chosen]), 1):
            verdicts.append(verdict := done.result())
            print(f"[{number:3}/{len(chosen)}] {_row(verdict)}", flush=True)  # noqa: T201
    return verdicts


def _print(verdicts: Sequence[Verdict], seconds: float) -> int:
    words = [verdict.word for verdict in verdicts]
    for verdict in verdicts:
        if verdict.word != "killed":
            print(_row(verdict), verdict.printed)  # noqa: T201
    folders = sorted({_folder(verdict) for verdict in verdicts})
    print(f"\n{'FOLDER':12} {'KILLED':>8} {'SURVIVED':>8} {'NOT RUN':>8} {'ERROR':>8}")  # noqa: T201
    for folder in (*folders, "all"):
        mine = [verdict.word for verdict in verdicts if folder in ("all", _folder(verdict))]
        print(f"{folder:12} " + " ".join(f"{mine.count(word):8}" for word in WORDS))  # noqa: T201
    killed = words.count("killed") / len(words) if words else 0.0
    print(f"{killed:.1%} killed in {seconds:.0f} s; at least {LEAST_KILLED:.0%} must be")  # noqa: T201
    return int(killed < LEAST_KILLED)


def _folder(verdict: Verdict) -> str:
    return verdict.mutation.file.partition("/")[0]


def _row(verdict: Verdict) -> str:
    return f"{verdict.word:8} {verdict.seconds:5.1f} s  {verdict.mutation.file}: {verdict.mutation.rule}"


if __name__ == "__main__":
    sys.exit(main())
