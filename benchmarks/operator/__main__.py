"""First cycles of the operator as the chart installs it: `python -m benchmarks.operator`."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.operator.first_cycles import first_cycles
from benchmarks.operator.installation import installed_on
from benchmarks.operator.many_services import GPUS_PER_NODE, definitions, fleet, services
from cluster.errors import ConfigError, ControlPlaneError, Mistake
from simulator.controlplane.binaries import Programs, control_plane_programs, progress_on
from simulator.controlplane.commands import ControlPlaneSettings, Folder
from simulator.controlplane.server import down, up

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTS = ("examples", "services")
LEASE_S = 7200
"""Lease duration of simulated nodes, seconds; long, because their renewals are not measured."""

Record = Mapping[str, object]
Objects = list[dict[str, Any]]


@click.command(context_settings={"show_default": True})
@click.option("--parts", callback=arguments.words, default=",".join(PARTS), help=f"Of {', '.join(PARTS)}.")
@click.option("--services", "count", type=click.IntRange(1), default=20, help="Services in the part `services`.")
@click.option("--nodes", type=click.IntRange(1), default=1000, help="Nodes of eight GPUs there, of five types.")
@click.option("--load", type=click.FloatRange(0.01), default=0.4, help="Fraction of the fleet that they need, roughly.")
@click.option("--cycles", type=click.IntRange(1), default=3, help="First cycles that are printed.")
@click.option("--seed", type=click.IntRange(0), default=42, help="Seed of the services.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(parts: tuple[str, ...], json_to: str | None, **given: Any) -> None:
    """Installs the chart on a control plane of its own and runs the operator with the chart's account and settings.

    \b
    examples   the repository's examples: 22 nodes, four services, gangs and pods
    services   many services on a fleet of five GPU types (synthetic profiles)
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ConfigError(tuple(Mistake(f"--parts {part}", f"choose of {', '.join(PARTS)}") for part in unknown))
    records: list[Record] = []
    try:
        for record in measured(parts, **given):
            records.append(record)
            click.echo(" ".join(f"{key}={value}" for key, value in record.items()), err=True)
    except ControlPlaneError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    finally:
        if json_to:
            write_lines(json_to, records)
        console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 160)
        for part in parts:
            console.print(table_of(part, [record for record in records if record["part"] == part]))


def measured(parts: tuple[str, ...], count: int, nodes: int, load: float, cycles: int, seed: int) -> Iterator[Record]:
    """Records of each part, each on a server of its own. Raises ControlPlaneError."""
    programs = control_plane_programs(progress_on(sys.stderr))
    for part in parts:
        click.echo(f"{part}: starting a control plane and installing the chart", err=True)
        if part == "examples":
            machines, objects = EXAMPLES / "nodes.yaml", _examples()
            yield from ({"part": part, **each} for each in _on_server(programs, machines.read_text(), objects, cycles))
        else:
            objects = [*definitions(), *services(count, nodes * GPUS_PER_NODE, seed, load)]
            machines_yaml = yaml.safe_dump_all(fleet(nodes))
            yield from ({"part": part, **each} for each in _on_server(programs, machines_yaml, objects, cycles))


def _examples() -> Objects:
    texts = (path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.yaml")) if path.stem != "nodes")
    documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
    return [each for document in documents for each in document.get("items", [document])]


def _on_server(programs: Programs, machines: str, objects: Objects, cycles: int) -> Iterator[Record]:
    with tempfile.TemporaryDirectory(prefix="tonnage-operator-", ignore_cleanup_errors=True) as path:
        folder, manifests = Folder(Path(path) / "server"), Path(path) / "nodes.yaml"
        manifests.write_text(machines, encoding="utf-8")
        try:
            server = up(folder, ControlPlaneSettings(manifests=str(manifests), lease_s=LEASE_S), programs)
            yield from first_cycles(installed_on(server, programs), objects, cycles)
        finally:
            if folder.state.exists():
                down(folder, delete=True)


def table_of(part: str, records: list[Record]) -> Table:
    """Table of a part: one row per cycle."""
    table = Table(title=f"operator, {part}")
    columns = list(dict.fromkeys(key for record in records for key in record if key != "part"))
    for column in columns:
        table.add_column(column)
    for record in records:
        table.add_row(*("" if record.get(key) is None else str(record.get(key)) for key in columns))
    return table


if __name__ == "__main__":
    main()
