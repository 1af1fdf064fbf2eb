"""Pressure (PSI) as a signal beside the brake's own event: how much later a trigger wakes, on an emulated machine."""

import os
import sys

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cluster.errors import GuestError
from simulator.kernel.guest import booted


@click.command(context_settings={"show_default": True})
@click.option("--repetitions", type=click.IntRange(1), default=20, help="Calls that meet their brake, per trigger.")
def main(repetitions: int) -> None:
    """Boots one emulated machine and prints percentiles."""
    table = Table(title=f"after the brake's event, ms; load {os.getloadavg()[0]:.1f}")
    for column in ("trigger on stall within 500 ms", "min", "p50", "p95", "max"):
        table.add_column(column, justify="left" if column.startswith("trigger") else "right")
    try:
        with booted(kernel="emulated") as guest:
            for stall_us in (1_000, 50_000):
                later_ms = guest.call("simulator.sandboxes.costs:signals", repetitions, stall_us)["later_ms"]
                found = np.percentile(later_ms, [0, 50, 95, 100])
                table.add_row(f"{stall_us / 1e3:g} ms", *(f"{value:.1f}" for value in found))
    except GuestError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    Console().print(table)


if __name__ == "__main__":
    main()
