"""Published figures, repeated: `python -m benchmarks list`, `python -m benchmarks run NAME`."""

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.cases import RAY, Row, all_cases, case_named, inputs_of, say
from benchmarks.tables import json_line, shown, text_of
from cli.printing.tables import table
from cluster.errors import ConfigError, TonnageError
from simulator.sweep.runner import SweepStopped

INTERRUPTED = 130
DATA_FOLDER = Path(os.environ.get("TONNAGE_DATA") or Path(__file__).parents[1].parent / "shared" / "data")


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Every figure that Tonnage publishes comes from a case of this command."""


@main.command("list")
@click.argument("name", required=False)
@click.option("--markdown", is_flag=True, help="The table of docs/benchmarks.md.")
def list_cases(name: str | None, *, markdown: bool) -> None:
    """Cases with their captions; with a NAME, its inputs at full and at the smallest size."""
    if markdown:
        click.echo(markdown_table(), nl=False)
    elif name:
        with _told():
            found = case_named(name)
        rows = [(key, shown(value), shown(found.quick.get(key))) for key, value in found.inputs.items()]
        click.echo(f"{found.caption}\n")
        click.echo(table(("INPUT", "PUBLISHED SIZE", "--quick"), rows), nl=False)
    else:
        rows = [(each.name, each.caption, ", ".join(sorted(each.needs))) for each in all_cases().values()]
        click.echo(table(("CASE", "WHAT", "NEEDS"), rows), nl=False)


def markdown_table() -> str:
    """All cases, as docs/benchmarks.md has them."""
    rows = (
        f"| `{each.name}` | {each.caption} | {', '.join(sorted(each.needs)) or '–'} |\n"
        for each in all_cases().values()
    )
    return f"| case | what is compared, on what | needs |\n|---|---|---|\n{''.join(rows)}"


@main.command()
@click.argument("name")
@click.option("--quick", is_flag=True, help="The smallest size: seconds, without data where that is possible.")
@click.option("--json", "as_json", is_flag=True, help="A JSON line on stdout for each result; the table on stderr.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA_FOLDER, help="Folder of the public data.")
@click.option("--seeds", help="Such as 42-51 or 1,3.")
@click.option("--jobs", help="Processes, where a case can use several.")
@click.option("--set", "changes", multiple=True, metavar="INPUT=VALUE", help="Another input; `list NAME` names them.")
def run(
    name: str, data: Path, seeds: str | None, jobs: str | None, changes: tuple[str, ...], *, quick: bool, as_json: bool
) -> None:
    """Runs a case. Exit status 1 where a result is wrong or cannot be had, 2 for wrong use."""
    given = {each.partition("=")[0]: each.partition("=")[2] for each in changes}
    given |= {key: value for key, value in (("seeds", seeds), ("jobs", jobs)) if value is not None}
    with _told():
        found = case_named(name)
        if RAY in found.needs and importlib.util.find_spec("ray") is None:
            raise click.ClickException(f"{found.name} needs Ray: python -m pip install ray")
        inputs = inputs_of(found, given, data, quick=quick)
    rows: list[Row] = []
    status = 0
    try:
        for row in _timed(found.run(**inputs)):
            rows.append(row)
            if as_json:
                click.echo(json_line(row))
    except ConfigError as error:
        _tell(error)
        status = 2
    except (TonnageError, SweepStopped, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.split(TonnageError)[1] is not None:
            raise
        say(f"error: {'; '.join(map(str, getattr(error, 'exceptions', (error,))))}")
        status = 1
    except KeyboardInterrupt:
        say("stopped early")
        status = INTERRUPTED
    if rows:
        click.echo(text_of(found, rows), nl=False, err=as_json)
    wrong = [str(row["wrong"]) for row in rows if row.get("wrong")]
    for each in wrong:
        say(f"wrong: {each}")
    sys.exit(status or int(bool(wrong)))


def _timed(rows: object) -> Iterator[Row]:
    """The rows, each announced on stderr with the time since the start."""
    began_s = time.monotonic()
    for number, row in enumerate(iter(rows), start=1):  # type: ignore[call-overload]
        words = [f"{key}={shown(value)}" for key, value in row.items() if not isinstance(value, dict | list)]
        say(f"[{number}, {time.monotonic() - began_s:.0f} s] {' '.join(words)[:200]}")
        yield row


@contextmanager
def _told() -> Iterator[None]:
    """Ends the command with status 2 where input is wrong, after all mistakes are on stderr."""
    try:
        yield
    except ConfigError as error:
        _tell(error)
        sys.exit(2)


def _tell(error: ConfigError) -> None:
    for mistake in error.mistakes:
        say(f"error: {mistake}")


if __name__ == "__main__":
    main()
