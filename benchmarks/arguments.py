"""Command-line arguments that benchmarks share, with their validation."""

import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from cluster.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


def seeds(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """Numbers of `42-51`, `42,44`, or a combination: `1-3,42`."""
    found: list[int] = []
    for part in words(_context, parameter, value):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise click.BadParameter(f"{part!r} is neither a number nor a range such as 42-51", param=parameter)
        found.extend(range(int(first), int(last or first) + 1))
    if not found:
        raise click.BadParameter(f"{value!r} contains no number", param=parameter)
    return tuple(dict.fromkeys(found))


def fractions(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    """Positive numbers of `0.9,1.05`."""
    found: list[float] = []
    for part in words(_context, parameter, value):
        try:
            found.append(float(part))
        except ValueError as error:
            raise click.BadParameter(f"{part!r} is not a number such as 0.9", param=parameter) from error
        if not 0 < found[-1] < float("inf"):
            raise click.BadParameter(f"{part!r} is not positive and finite", param=parameter)
    if not found:
        raise click.BadParameter(f"{value!r} contains no number", param=parameter)
    return tuple(found)


def words(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Words separated by commas, each once."""
    return tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))


def prices(_context: click.Context, parameter: click.Parameter, value: str) -> Mapping[str, float]:
    """Prices of `G2=1.2,T4=0.4`: US dollars per hour, by GPU type."""
    found: dict[str, float] = {}
    for part in words(_context, parameter, value):
        name, _, price = part.partition("=")
        try:
            found[name.strip()] = float(price)
        except ValueError as error:
            raise click.BadParameter(f"{part!r} is not a price such as T4=0.40", param=parameter) from error
        if not 0 <= found[name.strip()] < float("inf"):
            raise click.BadParameter(f"{part!r}: a price is finite and not negative", param=parameter)
    return found


def refusing_bad_input(command: Callable[P, R]) -> Callable[P, R]:
    """Decorator of commands: a ConfigError prints all its errors to stderr and exits with status 2."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except ConfigError as error:
            for mistake in error.mistakes:
                click.echo(f"error: {mistake}", err=True)
            sys.exit(2)

    return guarded


def write_lines(target: str, records: Iterable[Mapping[str, object]]) -> None:
    """Write JSON lines to a file, or to stdout for `-`. NaN becomes null, because JSON has no NaN."""
    text = "".join(json.dumps(_without_nan(record)) + "\n" for record in records)
    if target == "-":
        click.echo(text, nl=False)
    else:
        Path(target).write_text(text, encoding="utf-8")


def _without_nan(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_nan(held) for key, held in value.items()}
    return None if isinstance(value, float) and value != value else value  # only NaN differs from itself
