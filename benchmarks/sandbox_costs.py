"""Costs of isolation in a guest kernel: brake to freeze, a tool call's own cgroup, the controller at rest.

User-Mode Linux on a shared machine: no absolute latency follows for native kernels, only an upper bound.
"""

import os
import sys

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cluster.errors import GuestError
from simulator.kernel.guest import booted

COSTS = "simulator.sandboxes.costs"


@click.command(context_settings={"show_default": True})
@click.option("--repetitions", type=click.IntRange(1), default=100, help="Freezes and calls that are timed.")
@click.option("--agents", type=click.IntRange(1), default=64, help="Idle agents of the controller at rest.")
@click.option("--seconds", type=click.FloatRange(1.0), default=20.0, help="Time at rest.")
def main(repetitions: int, agents: int, seconds: float) -> None:
    """Boots one guest and prints percentiles."""
    table = Table(title=f"load {os.getloadavg()[0]:.1f}")
    for column in ("figure", "p50", "p95", "p99", "max"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    try:
        with booted() as guest:
            for name, rate_mib_s in (("500 MiB/s", 500.0), ("as fast as it can", 0.0)):
                found = guest.call(f"{COSTS}:freezes", repetitions, rate_mib_s, 64)
                table.add_row(f"brake to freeze written, {name}, ms", *_percentiles(found["milliseconds"]))
                table.add_row(f"held beyond the lease, {name}, MiB", *_percentiles(found["over_mib"]))
            found = guest.call(f"{COSTS}:calls", repetitions)
            more = [own - shared for own, shared in zip(found["own"], found["shared"], strict=True)]
            table.add_row("process in a leaf of its own, ms", *_percentiles(found["own"]))
            table.add_row("process in the shared leaf, ms", *_percentiles(found["shared"]))
            table.add_row("own leaf over the shared one, ms", *_percentiles(more))
            table.add_row("leaf made, limited, read and removed, ms", *_percentiles(found["leaf"]))
            rest = guest.call(f"{COSTS}:at_rest", agents, seconds)
            table.add_row(f"controller at rest, {agents} agents, share of a core", f"{rest['share']:.4f}", "", "", "")
            table.add_row("its wake-ups a second", f"{rest['wake_ups'] / seconds:.2f}", "", "", "")
    except GuestError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    Console().print(table)


def _percentiles(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in np.percentile(values, [50, 95, 99, 100])]


if __name__ == "__main__":
    main()
