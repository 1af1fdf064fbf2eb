"""Runs of pytest in forks of a process that has loaded the libraries: half the time of starting an interpreter each."""

import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

import pytest

LIBRARIES = (
    *("pytest", "hypothesis", "hypothesis.strategies", "numpy", "msgspec", "pydantic"),
    *("pydantic_settings", "structlog", "yaml", "click", "aiohttp"),
)
"""Loaded once. Nothing of the product's and of its tests': every fork loads those of its own tree."""
_TOLD = 64
"""Added to pytest's exit status, so that a fork that ends otherwise has a negative one and is not taken for a failed
test."""
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(list(LIBRARIES))


def run(
    tree: Path, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> tuple[int | None, str]:
    """Exit status of pytest in a tree, None when it did not end in time; and the end of what it printed."""
    printed = tree / "printed"
    fork = _FORKS.Process(target=_run, args=(str(tree), list(arguments), dict(environment), str(printed)))
    fork.start()
    fork.join(timeout_s)
    if fork.is_alive():
        fork.kill()
        fork.join()
        return None, ""
    words = printed.read_text(encoding="utf-8", errors="replace")[-2000:]
    return (fork.exitcode or 0) - _TOLD, words


def _run(tree: str, arguments: list[str], environment: dict[str, str], printed: str) -> None:
    os.environ.update(environment)
    sys.dont_write_bytecode = False  # the next fork reads what this one compiles
    os.chdir(tree)
    output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]
    here = {"", str(Path(__file__).parents[2])}
    sys.path[:] = [tree, *(each for each in sys.path if each not in here)]
    sys.exit(_TOLD + pytest.main(arguments))
