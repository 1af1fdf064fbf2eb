"""Effect of placement that knows the services' daily power profiles: peaks of rows, and additional servers.

Simulated. The same services get the same requests, however they are placed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from cluster.arrays import FloatArray, IntArray
from placement.policies.published import BestFit, Random
from simulator.power.machine import DGX_A100 as MACHINE
from simulator.power.requests import RateCurve, RowLoad, made_up_rates, read_rates
from simulator.power.row_fleet import RowService, draws_w, expected_course, fleet_of, place, regions, zones

HOW = ("packed", "random", "even", "aware")
"""Placements: best fit in order of the services; any free server; each service spread evenly over the rows; best fit
with the lowest expected peak."""
LOAD = RowLoad()
NAMEPLATE_W = MACHINE.highest_w
"""Power per server in the budget for placement, as in a row without oversubscription, watts."""

Record = Mapping[str, object]


def _counts(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    return arguments.seeds(context, parameter, value) if value else ()


@click.command(context_settings={"show_default": True})
@click.option("--rate", multiple=True, type=click.Path(path_type=Path), help="CSV: t_s, req_per_s. [generated]")
@click.option("--fleet", type=click.Choice(["zones", "regions"]), default="zones", help="See docs/power-simulation.md.")
@click.option("--services", type=click.IntRange(2, 60), default=4)
@click.option("--rows", type=click.IntRange(2, 40), default=4)
@click.option("--servers", type=click.IntRange(2, 400), default=40, help="Servers of each row; all are used.")
@click.option("--more", callback=_counts, default="", help="Additional servers per row to test, e.g. 4-6.")
@click.option(
    "--settled",
    type=click.FloatRange(0, 0.9),
    default=0.0,
    help="Fraction of each row where services are placed already, separately.",
)
@click.option(
    "--learn-days", type=click.IntRange(1), default=7, help="Days for learning the profiles; the rest is evaluated."
)
@click.option("--days", type=click.IntRange(2), default=14)
@click.option("--seeds", callback=arguments.seeds, default="1-3")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    rate: tuple[Path, ...],
    fleet: str,
    services: int,
    rows: int,
    servers: int,
    more: tuple[int, ...],
    settled: float,
    learn_days: int,
    days: int,
    seeds: tuple[int, ...],
    json_to: str | None,
) -> None:
    """Places the same services on the same rows with and without power profiles, and serves the same load on each."""
    curves = [read_rates(path, days) for path in rate] or [made_up_rates(days)]
    records: list[Record] = []
    for seed in seeds:
        for extra in (0, *more):
            offered = _offered(fleet, curves, services, rows * (servers + extra), seed)
            for how in HOW:
                record = _served(how, offered, rows, servers + extra, settled, learn_days, days, seed)
                records.append({**record, "extra": extra})
                words = f"{how} seed {seed}, {servers + extra} servers a row: highest row"
                click.echo(f"{words} {record['peak_w'] / 1000:.1f} kW", err=True)  # type: ignore[operator]
    if json_to:
        write_lines(json_to, records)
    console = Console(stderr=bool(json_to), width=120)
    console.print(peaks_table([record for record in records if record["extra"] == 0]))
    if more:
        console.print(servers_table(records, servers))


def _offered(fleet: str, curves: Sequence[RateCurve], services: int, servers: int, seed: int) -> tuple[RowService, ...]:
    return zones(curves[0], services, servers) if fleet == "zones" else regions(curves, services, servers, seed)


def _served(
    how: str,
    offered: Sequence[RowService],
    rows: int,
    servers: int,
    settled: float,
    learn_days: int,
    days: int,
    seed: int,
) -> dict[str, object]:
    placed = _placed(how, offered, rows, servers, settled, learn_days, seed)
    draw_w = draws_w(MACHINE, offered, placed, LOAD, learn_days, days - learn_days, seed)
    return {
        "simulated": True,
        "how": how,
        "seed": seed,
        "placed": placed.tolist(),
        "peak_w": float(draw_w.max()),
        "peaks_w": draw_w.max(axis=1).tolist(),
        "least_w": float(draw_w.sum(axis=0).max() / rows),
    }


def _placed(
    how: str, offered: Sequence[RowService], rows: int, servers: int, settled: float, learn_days: int, seed: int
) -> IntArray:
    known: dict[str, FloatArray] = {}
    if how == "aware":
        known = {service.name: expected_course(MACHINE, service.curve, LOAD, learn_days) for service in offered}
    fleet = fleet_of(MACHINE, rows, servers, servers * NAMEPLATE_W, known)
    policy = Random(seed) if how == "random" else BestFit()
    return place(offered, rows, servers, policy, fleet=fleet, spread=how == "even", settled_share=settled)


def _peaks(records: Sequence[Record], how: str, field: str = "peak_w") -> FloatArray:
    return np.array([record[field] for record in records if record["how"] == how], dtype=np.float64)


def peaks_table(records: Sequence[Record]) -> Table:
    """Highest draw of any row, and its lower bound for any placement of the same load."""
    table = Table(title="Highest 2-s draw of any row (simulated), mean and worst over the seeds")
    for heading in ("placement", "mean kW", "worst kW", "lower than packed: mean, least to most"):
        table.add_column(heading, justify="left" if heading == "placement" else "right")
    packed = _peaks(records, "packed")
    lines = [(how, _peaks(records, how)) for how in HOW]
    # The fleet's highest draw divided evenly: some row has at least that in every placement.
    lines.append(("no placement is below", np.min([_peaks(records, how, "least_w") for how in HOW], axis=0)))
    for name, own in lines:
        lower = 1 - own / packed
        table.add_row(
            name,
            f"{own.mean() / 1000:.1f}",
            f"{own.max() / 1000:.1f}",
            f"{lower.mean():.1%}, {lower.min():.1%} to {lower.max():.1%}",
        )
    return table


def servers_table(records: Sequence[Record], servers: int) -> Table:
    """Number of servers per row whose draw stays within that of the packed rows, for every seed."""
    budget = {
        record["seed"]: record["peak_w"] for record in records if record["how"] == "packed" and not record["extra"]
    }
    extras = sorted({int(record["extra"]) for record in records})  # type: ignore[call-overload]
    table = Table(title="Highest draw over the packed rows' (simulated), worst seed; at or below 100 % the servers fit")
    for heading in ("placement", *(f"{servers + extra} servers" for extra in extras), "more servers"):
        table.add_column(heading, justify="left" if heading == "placement" else "right")
    for how in HOW:
        worst = {
            extra: max(
                float(record["peak_w"]) / float(budget[record["seed"]])  # type: ignore[arg-type]
                for record in records
                if record["how"] == how and record["extra"] == extra
            )
            for extra in extras
        }
        fit = [extra for extra in extras if all(worst[less] <= 1.0 for less in extras if less <= extra)]
        most = f"{max(fit) / servers:+.1%}" if fit else "none fit"
        table.add_row(how, *(f"{worst[extra]:.1%}" for extra in extras), most)
    return table


if __name__ == "__main__":
    main()
