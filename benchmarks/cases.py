"""Cases of the benchmarks: what each compares, on which inputs, and how its rows become a table."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml

import benchmarks
from cluster.errors import ConfigError, Mistake
from simulator.sweep.runner import WorkerProcesses

Row = dict[str, Any]
"""One result as plain data. A row with a text under `wrong` says what must not be: the command then fails."""
Rows = Iterable[Row]
Run = TypeVar("Run", bound=Callable[..., Rows])
K = TypeVar("K")
R = TypeVar("R")

DATA = Path("$DATA")
"""Stands for the folder of public data in the inputs of a case."""
RAY, CONTROL_PLANE, GUEST, EMULATED, TORCH = "Ray", "control plane", "guest kernel", "emulated machine", "torch"
MINUTES = "minutes"
"""What a case may need beyond Python; minutes: its smallest size takes more than ten seconds."""


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark: its inputs are the keyword parameters of `run`, whose defaults are the published size."""

    name: str
    caption: str
    """What is compared with what, on which input, and whether it is simulated: one sentence."""
    run: Callable[..., Rows]
    inputs: Mapping[str, Any]
    quick: Mapping[str, Any]
    """Inputs that differ at the smallest size, which tests run and which needs no data where that is possible."""
    columns: tuple[str, ...] = ()
    """Keys of a row that the table shows; empty: all."""
    by: tuple[str, ...] = ()
    """Rows with equal values under these keys are one line of the table; empty: a line for each row."""
    middle: str = "mean"
    """How numbers of such rows are joined: mean (with least and most), median or worst."""
    summary: Callable[[Sequence[Row]], Rows] | None = None
    """Makes the rows of the table from all rows, where joining them is not enough."""
    needs: frozenset[str] = field(default_factory=frozenset)

    @property
    def smallest(self) -> Mapping[str, Any]:
        return {**self.inputs, **self.quick}


_CASES: dict[str, Case] = {}


def case(
    name: str,
    caption: str,
    *,
    given: Mapping[str, Any] | None = None,
    quick: Mapping[str, Any] | None = None,
    needs: Sequence[str] = (),
    **shown: Any,
) -> Callable[[Run], Run]:
    """Declares a case; to be put before its function, or called with it for one more case of the same function.

    given: inputs that differ from the function's defaults. shown: `columns`, `by`, `middle` and `summary` of the case.
    """

    def declared(run: Run) -> Run:
        defaults = {each.name: each.default for each in inspect.signature(run).parameters.values()}
        if unknown := {*(given or {}), *(quick or {})} - defaults.keys():
            raise ValueError(f"{name}: {run.__name__} has no input {', '.join(sorted(unknown))}")
        inputs = {**defaults, **(given or {})}
        _CASES[name] = Case(name, caption, run, inputs, quick or {}, needs=frozenset(needs), **shown)
        return run

    return declared


def all_cases() -> Mapping[str, Case]:
    """Every case of every module in this package, by name."""
    for module in pkgutil.iter_modules(benchmarks.__path__, "benchmarks."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return dict(sorted(_CASES.items()))


def case_named(name: str) -> Case:
    """Raises ConfigError for a name that is none, with those that are like it."""
    known = all_cases()
    if name not in known:
        like = [each for each in known if name.partition("-")[0] in each]
        raise ConfigError(
            Mistake(f"case {name}", "is unknown", f"one of: {', '.join(like or known)}; `python -m benchmarks list`")
        )
    return known[name]


def inputs_of(each: Case, changes: Mapping[str, str], data: Path, *, quick: bool) -> dict[str, Any]:
    """Inputs of a run: the published ones or the smallest, with these changes, and files of the data folder found.

    Raises ConfigError with every name that is no input, value that does not fit and file that is missing.
    """
    found, mistakes = dict(each.smallest if quick else each.inputs), []
    for name, text in changes.items():
        if name not in found:
            has = ", ".join(each.inputs) or "none"
            mistakes.append(Mistake(f"input {name}", f"{each.name} has no such input", f"its inputs are: {has}"))
            continue
        try:
            found[name] = _like(each.inputs[name], text)
        except ValueError as error:
            mistakes.append(Mistake(f"input {name}", f"{text!r} is no value for it ({error})"))
    for name, value in found.items():
        found[name] = _in_folder(value, data)
        for path in _files(found[name]):
            if not path.exists():
                remedy = "docs/benchmarks.md tells where to get it; or give --data FOLDER, or --quick"
                mistakes.append(Mistake(f"input {name}", f"there is no {path}", remedy))
    if mistakes:
        raise ConfigError(tuple(dict.fromkeys(mistakes)))
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers of `42-51`, `42,44`, or both: `1-3,42`. Raises ValueError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{part!r} is neither a number nor a range such as 42-51")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(dict.fromkeys(found))


def spread(runs: Sequence[K], play: Callable[[K], R], jobs: int) -> Iterator[tuple[K, R]]:
    """Each run with its result as it finishes, played in so many processes. Raises SweepStopped where these are lost.

    play: a module's function, or a partial of one.
    """
    for position, result in WorkerProcesses(jobs)(runs, play):
        yield runs[position], result


def say(line: str) -> None:
    """Progress, on stderr."""
    click.echo(line, err=True)


def _like(declared: Any, text: str) -> Any:
    """A text as a value of the declared one's kind. Raises ValueError."""
    if text in ("", "null") and not isinstance(declared, tuple | str):
        return None
    match declared:
        case tuple():
            if declared and all(type(each) is int for each in declared):
                return numbers(text)
            kind = declared[0] if declared else None
            return tuple(_like(kind, part.strip()) for part in text.split(",") if part.strip())
        case bool():
            if text not in ("true", "false"):
                raise ValueError("true or false")
            return text == "true"
        case int() | float():
            return type(declared)(text)
        case Path():
            return Path(text)
        case str():
            return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError("not YAML") from error


def _in_folder(value: Any, data: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_in_folder(each, data) for each in value)
    if isinstance(value, Path) and value.is_relative_to(DATA):
        return data / value.relative_to(DATA)
    return value


def _files(value: Any) -> list[Path]:
    if isinstance(value, tuple):
        return [path for each in value for path in _files(each)]
    return [value] if isinstance(value, Path) else []
