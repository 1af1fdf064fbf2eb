"""Health, simulated: effective training time of a job of 10,000 GPUs under faults, by what is done about them."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from math import inf
from time import process_time

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from health.remediation.costs import advised_interval_s, mean_out_s, mtbf_s, spares
from health.remediation.facts import Policy
from simulator.health.responses import FaultResponse, Manual, Remediated, RestartOnTimeout, Without, played
from simulator.health.training_run import CLUSTER, DAY_S, STOPS_PER_1000_NODE_DAYS, Setup, TrainingRun, repairs_s

LIMITLESS = Policy(
    job_quarantines=10**6, cluster_share=inf, out_share=inf, domain_share=inf, domain_suspects=10**6, restarts=10**6
)
MISS_SHARE = 0.01
"""Share of the time that all spares may be in use."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One response, in a fleet that may differ from the others'."""

    response: Callable[[], FaultResponse]
    setup: Callable[[Setup], Setup] = lambda setup: setup


VARIANTS = {
    "tonnage": Variant(Remediated),
    "NCCL time-out + restart": Variant(RestartOnTimeout),
    "NCCL time-out + person": Variant(Manual),
    "slow: never move": Variant(lambda: Remediated(without=Without(ski_rental="never"))),
    "slow: move at once": Variant(lambda: Remediated(without=Without(ski_rental="at once"))),
    "no restart in place": Variant(lambda: Remediated(without=Without(in_place=True))),
    "no breakers": Variant(lambda: Remediated(LIMITLESS)),
    "no probation": Variant(lambda: Remediated(Policy(probation_s=0.0))),
    "spares 1 %": Variant(Remediated, lambda setup: replace(setup, spares=round(setup.nodes * 0.01))),
    "no spares": Variant(Remediated, lambda setup: replace(setup, spares=0)),
    "checkpoints twice as far apart": Variant(
        Remediated, lambda setup: replace(setup, interval_s=2 * setup.interval_s)
    ),
    "checkpoints half as far apart": Variant(Remediated, lambda setup: replace(setup, interval_s=setup.interval_s / 2)),
}
COMPARED = ("tonnage", "NCCL time-out + restart", "NCCL time-out + person")


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=arguments.seeds, default="1-8", help="Seeds of the fault process.")
@click.option("--days", type=click.FloatRange(0.1), default=30.0, help="Length of each run.")
@click.option("--nodes", type=click.IntRange(8), default=1250, help="Nodes of eight GPUs that the job needs.")
@click.option("--save-s", type=click.FloatRange(0), default=1.0, help="Stall of the job per checkpoint.")
@click.option("--restart-s", type=click.FloatRange(1), default=150.0, help="Restart on other nodes, to the first step.")
@click.option("--in-place-s", type=click.FloatRange(1), default=75.0, help="Restart on the same nodes.")
@click.option("--slow/--stops-only", default=True, help="Whether nodes and links also become slow.")
@click.option("--variants", callback=arguments.words, default=",".join(COMPARED), help="Some of them, or `all`.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    seeds: tuple[int, ...],
    days: float,
    nodes: int,
    save_s: float,
    restart_s: float,
    in_place_s: float,
    slow: bool,
    variants: tuple[str, ...],
    json_to: str | None,
) -> None:
    """Play the same faults for each variant: the ratio of work that counts to time, and where the rest goes."""
    chosen = tuple(VARIANTS) if variants == ("all",) else variants
    for name in chosen:
        if name not in VARIANTS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(VARIANTS)}", param_hint="--variants")
    rate_s = sum(STOPS_PER_1000_NODE_DAYS.values()) / 1000 / DAY_S
    setup = Setup(
        nodes=nodes,
        spares=spares(nodes, rate_s, mean_out_s(repairs_s(), inf), miss_share=MISS_SHARE, burst=CLUSTER),
        days=days,
        interval_s=advised_interval_s(save_s, mtbf_s(nodes, rate_s)),
        save_s=save_s,
        restart_s=restart_s,
        in_place_s=in_place_s,
    )
    summaries = [_summary(name, list(_rows(name, VARIANTS[name], setup, seeds, slow=slow))) for name in chosen]
    if json_to is not None:
        write_lines(json_to, [{**each, "setup": asdict(setup), "slow": slow} for each in summaries])
    if json_to != "-":
        _print(summaries, setup, slow=slow)


def _rows(
    name: str, variant: Variant, setup: Setup, seeds: tuple[int, ...], *, slow: bool
) -> Iterator[dict[str, float]]:
    for seed in seeds:
        started_s = process_time()
        response = variant.response()
        run = played(variant.setup(setup), response, seed, slow=slow)
        yield {**_row(run), **_decided(response), "cpu_s": process_time() - started_s}
        if sys.stderr.isatty():
            click.echo(f"{name}: seed {seed} {run.ettr:.4f}", err=True)


def _row(run: TrainingRun) -> dict[str, float]:
    shares = {f"{what}_share": lost_s / run.now_s for what, lost_s in asdict(run.losses).items()}
    return {"ettr": run.ettr, "restarts_per_day": run.restarts / run.setup.days, **shares}


def _decided(response: FaultResponse) -> dict[str, float]:
    return {each: float(count) for each, count in response.decided.items()} if isinstance(response, Remediated) else {}


def _summary(name: str, rows: list[dict[str, float]]) -> dict[str, object]:
    """Means over seeds; the interval of the mean ratio at 95 %, by Student's t over seeds."""
    keys = sorted({key for row in rows for key in row})
    means = {key: float(np.mean([row.get(key, 0.0) for row in rows])) for key in keys}
    ratios = [row["ettr"] for row in rows]
    half = _T95.get(len(rows), 2.0) * float(np.std(ratios, ddof=1)) / np.sqrt(len(rows)) if len(rows) > 1 else inf
    return {
        "variant": name,
        "seeds": len(rows),
        **means,
        "ettr_low": means["ettr"] - half,
        "ettr_high": means["ettr"] + half,
        "ettr_worst": min(ratios),
    }


_T95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 12: 2.201, 16: 2.131}
"""Student's t at 97.5 % for so many seeds."""


def _print(summaries: list[dict[str, object]], setup: Setup, *, slow: bool) -> None:
    shown = ("down_share", "again_share", "checkpoints_share", "slow_share", "restarts_per_day")
    faults = "stops and slow-downs" if slow else "stops"
    table = Table(
        *("variant", "ETTR %", "95 % interval", "worst", *(each.removesuffix("_share") for each in shown)),
        title=f"{setup.nodes * 8:,} GPUs, {setup.spares} spare nodes, {setup.days:g} days, {faults}, simulated; "
        f"a checkpoint each {setup.interval_s:.0f} s",
    )
    for each in summaries:
        values = [float(str(each[key])) for key in ("ettr", "ettr_low", "ettr_high", "ettr_worst", *shown)]
        ratio, low, high, worst = (f"{100 * value:.2f}" for value in values[:4])
        rest = [f"{100 * value:.2f} %" for value in values[4:-1]]
        table.add_row(str(each["variant"]), ratio, f"{low} to {high}", worst, *rest, f"{values[-1]:.1f}")
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
