"""`python -m tests.size [FOLDER ...]`: the counts of one checkout or several side by side; the ceilings of this one.

`python -m tests.size --lower` lowers every ceiling to what is there now. Raising one is a change of ceilings.toml by
hand, whose commit says why.
"""

import math
import sys
from pathlib import Path

import click

from tests.size.counts import FLOORS, UNBOUNDED, ceilings, counts


def main(arguments: list[str]) -> None:
    here = Path(__file__).parents[2]
    if arguments == ["--lower"]:
        found = counts(here)
        limits = ceilings()
        kept = {
            name: max(limits.get(name, 0), _down(count))
            if name in FLOORS
            else min(limits.get(name, math.inf), _up(count))
            for name, count in found.items()
            if name not in UNBOUNDED
        }
        file = Path(__file__).with_name("ceilings.toml")
        head = "".join(line for line in file.read_text("utf-8").splitlines(keepends=True) if line.startswith("#"))
        file.write_text(head + "".join(f'"{name}" = {limit:g}\n' for name, limit in kept.items()), encoding="utf-8")
        return
    columns = [counts(Path(argument)) for argument in arguments or [str(here)]]
    limits = ceilings()
    for name in columns[0]:
        figures = "".join(f"{column[name]:12,.1f}" for column in columns)
        click.echo(f"{name:42}{figures}{limits[name]:12,.1f}" if name in limits else f"{name:42}{figures}")


def _up(count: float) -> float:
    return math.ceil(count * 10) / 10 if count < 100 else math.ceil(count)


def _down(count: float) -> float:
    return math.floor(count * 10) / 10


if __name__ == "__main__":
    main(sys.argv[1:])
