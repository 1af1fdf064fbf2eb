"""Whether placement that knows when services draw lowers the peaks of rows. Simulated."""

from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from cluster.arrays import FloatArray, IntArray
from placement.policies.best_fit import BestFit
from placement.policies.random import Random
from placement.power_room import PowerRoom
from simulator.power.demand import DAY_S, made_up_rates, read_rates
from simulator.power.machine import DGX_A100 as MACHINE
from simulator.power.requests import Load
from simulator.power.rows import Service, expected_course_w, peaks_w, place, shifted

HOW = ("packed", "random", "aware")
"""Best fit, service by service as they ask; any free server; where the expected peak stays lowest."""


@click.command(context_settings={"show_default": True})
@click.option("--rate", type=click.Path(path_type=Path), help="Request rates, CSV with t_s and req_per_s. [made up]")
@click.option("--services", type=click.IntRange(2, 24), default=4, help="Each peaks at other hours, spread evenly.")
@click.option("--rows", type=click.IntRange(2, 40), default=4)
@click.option("--servers", type=click.IntRange(2, 400), default=40, help="Of each row; all are used.")
@click.option("--learn-days", type=click.IntRange(1), default=7, help="Days to learn courses from; judged on the rest.")
@click.option("--days", type=click.IntRange(2), default=14)
@click.option("--seeds", callback=arguments.seeds, default="1-3")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    rate: Path | None,
    services: int,
    rows: int,
    servers: int,
    learn_days: int,
    days: int,
    seeds: tuple[int, ...],
    json_to: str | None,
) -> None:
    """Places the same services on the same rows blind and aware, and serves the same load on both."""
    curve = made_up_rates(days) if rate is None else read_rates(rate, days)
    load = Load()
    each = rows * servers // services
    offered = [Service(f"s{n}", shifted(curve, 24 * n / services), each) for n in range(services)]
    courses = [expected_course_w(MACHINE, service.curve, load, learn_days) for service in offered]
    records = []
    for seed in seeds:
        for how in HOW:
            placed = _placed(how, offered, courses, rows, servers, seed)
            peak_w = peaks_w(MACHINE, offered, placed, load, learn_days * DAY_S, seed)
            records.append(
                {"simulated": True, "how": how, "seed": seed, "placed": placed.tolist(), "peak_w": peak_w.tolist()}
            )
            click.echo(f"{how} seed {seed}: highest row {peak_w.max() / 1000:.1f} kW", err=True)
    if json_to:
        write_lines(json_to, records)
    Console(stderr=bool(json_to), width=120).print(_table(records, servers))


def _placed(
    how: str, offered: list[Service], courses: list[FloatArray], rows: int, servers: int, seed: int
) -> IntArray:
    order = np.repeat(np.arange(len(offered)), [service.instances for service in offered])
    count = rows * servers
    at_rest_w = np.full((rows, len(courses[0])), servers * MACHINE.idle_w)
    room = PowerRoom(np.arange(count) // servers, np.full(rows, servers * MACHINE.highest_w), at_rest_w)
    policy = Random(seed) if how == "random" else BestFit()
    return place(offered, rows, servers, policy, room=room if how == "aware" else None, courses_w=courses, order=order)


def _table(records: list[dict[str, object]], servers: int) -> Table:
    table = Table(title="Highest 2-s draw of any row (simulated), mean and worst over the seeds")
    for heading in ("placement", "mean kW", "worst kW", "lower than packed", "more servers at that peak"):
        table.add_column(heading, justify="left" if heading == "placement" else "right")
    peaks = {how: np.array([np.max(r["peak_w"]) for r in records if r["how"] == how]) for how in HOW}  # type: ignore[call-overload]
    for how, own in peaks.items():
        lower = 1 - own / peaks["packed"]
        more = int(servers * peaks["packed"].mean() / own.mean()) - servers
        table.add_row(
            how,
            f"{own.mean() / 1000:.1f}",
            f"{own.max() / 1000:.1f}",
            f"{lower.min():.1%} to {lower.max():.1%}",
            f"{more:+d}",
        )
    return table


if __name__ == "__main__":
    main()
