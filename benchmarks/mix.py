"""Cost, proven gap and time of the GPU mix, compared with the textbook model: `python -m benchmarks.mix --help`."""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.mix_cases import Case, Outcome, Terms, line_of, run_case, summary_of, with_peer
from benchmarks.mix_replay import Replay, replay_case
from benchmarks.profiles import ProfileSet, read_profiles
from benchmarks.roofline import random_profiles, roofline_profiles
from cluster.errors import ConfigError, Mistake
from placement.mix.problem import IDLE_SHARE
from placement.stock import Stock

SLICES_PER_BUCKET = 20
"""Slices per bucket of generated sizes: 12x2000 is 100 buckets of 20 slices."""


@click.command(help=__doc__)
@click.option(
    "--profiles", type=click.Path(path_type=Path), help="Profile file; default: a roofline of four GPU types."
)
@click.option("--workloads", help="Comma-separated; default: all of the file.")
@click.option("--slos", help="Comma-separated, e.g. 40ms,120ms; default: all of the file.")
@click.option("--rates", help="Requests per second, comma-separated; default: the file's, or 1,2,4,8,16,32.")
@click.option("--slice-factor", type=click.IntRange(min=1), help="Slices per bucket; default: the file's, or 8.")
@click.option("--continuous", is_flag=True, help="Split buckets in any proportion instead of in slices.")
@click.option("--inventory", help="Limits per GPU type, e.g. A100=4,H100=2; others are unlimited.")
@click.option("--prices", help="Other prices, $/h, e.g. H100=4.5.")
@click.option("--deadline", "deadline_s", default=10.0, show_default=True, help="Work per case, in nominal seconds.")
@click.option("--gap", default=0.0, show_default=True, help="Relative gap at which the solver stops.")
@click.option("--headroom", default=None, help="Fraction kept free, or `auto` (for bursts). Default 0; replay: auto.")
@click.option("--per-instance", is_flag=True, help="Keep slices whole on single instances. Default: the fluid model.")
@click.option("--no-peer", is_flag=True, help="Do not run the textbook model (one binary per slice, CBC).")
@click.option(
    "--peer-limit", "peer_limit_s", default=15.0, show_default=True, help="Time limit of the textbook model, s."
)
@click.option("--size", help="Generated profiles instead, TYPESxSLICES, e.g. 12x2000.")
@click.option("--replay", is_flag=True, help="Serve simulated requests with each mix and count those within the SLO.")
@click.option("--replay-seconds", "for_s", default=1800.0, show_default=True, help="Measured simulated seconds.")
@click.option("--idle-share", default=IDLE_SHARE, show_default=True, help="Replay: time per token of a lone request.")
@click.option("--seed", default=42, show_default=True, help="Seed of the replay and of --size.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout; the summary on stderr.")
def main(**options: Any) -> None:
    try:
        run(options)
    except ConfigError as wrong:
        click.echo(f"error: {wrong}", err=True)
        sys.exit(2)


def run(options: dict[str, Any]) -> None:
    """Run all cases. The whole input is checked before the first case, so that bad input writes nothing."""
    profiles = _profiles(options)
    cases = _cases(profiles, options)
    terms = _terms(profiles, options)
    if options["replay"]:
        replay = Replay(options["seed"], _above_0("--replay-seconds", options["for_s"]), _idle_share(options))
        lines = [
            _with_options(replay_case(case, profiles, terms, replay, time.perf_counter), options) for case in cases
        ]
        if not options["as_json"]:
            Console(width=140).print(_replay_table(lines))
        return
    outcomes = []
    for case in cases:
        outcome = run_case(case, profiles, terms, time.perf_counter)
        # The textbook model has no room for bursts, so it is compared only where both answer the same question.
        if not options["no_peer"] and terms.headroom_share is not None:
            outcome = with_peer(outcome, limit_s=options["peer_limit_s"], clock=time.perf_counter)
        _with_options(line_of(outcome), options)
        outcomes.append(outcome)
    if not options["as_json"]:
        Console(width=140).print(_mix_table(outcomes))
    click.echo(json.dumps(summary_of(outcomes), indent=2), err=options["as_json"])


def _with_options(line: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    if options["as_json"]:
        click.echo(json.dumps(line))
    return line


def _profiles(options: dict[str, Any]) -> ProfileSet:
    if options["size"]:
        profiles = _made_up(options["size"], options["seed"])
    else:
        profiles = read_profiles(options["profiles"]) if options["profiles"] else roofline_profiles()
    prices = _pairs("--prices", options["prices"], float, tuple(profiles.prices))
    for name, price in prices.items():
        _above_0(f"--prices {name}", price)
    return replace(profiles, prices={**profiles.prices, **prices})


def _made_up(size: str, seed: int) -> ProfileSet:
    types, _, slices = size.partition("x")
    buckets = int(slices) // SLICES_PER_BUCKET if slices.isdigit() else 0
    side = math.isqrt(buckets)
    if not types.isdigit() or int(types) < 1 or side < 1 or side * side * SLICES_PER_BUCKET != int(slices):
        remedy = f"give TYPESxSLICES with a square number of buckets of {SLICES_PER_BUCKET} slices, e.g. 12x2000"
        raise ConfigError(Mistake("--size", f"{size!r}", remedy))
    return random_profiles(int(types), (side, side), seed)


def _cases(profiles: ProfileSet, options: dict[str, Any]) -> list[Case]:
    workloads = _chosen("--workloads", options["workloads"], tuple(profiles.workloads))
    slos = _chosen("--slos", options["slos"], tuple(profiles.tables))
    rates = profiles.rates
    if options["rates"]:
        rates = tuple(_above_0("--rates", _number("--rates", text, float)) for text in options["rates"].split(","))
    return [Case(w, slo, rate) for w in workloads for slo in slos for rate in rates]


def _terms(profiles: ProfileSet, options: dict[str, Any]) -> Terms:
    inventory = _pairs("--inventory", options["inventory"], int, tuple(profiles.prices))
    for name, count in inventory.items():
        if count < 0:
            raise ConfigError(Mistake(f"--inventory {name}", f"is {count}", "give 0 or more devices"))
    factor = None if options["continuous"] else options["slice_factor"] or profiles.slice_factor
    if not 0 <= options["gap"] < 1:
        raise ConfigError(Mistake("--gap", f"is {options['gap']}", "give 0 ≤ gap < 1"))
    return Terms(
        slice_factor=factor,
        headroom_share=_headroom(options),
        per_instance=options["per_instance"],
        stock={name: Stock(count) for name, count in inventory.items()},
        deadline_s=_above_0("--deadline", options["deadline_s"]),
        gap=options["gap"],
    )


def _headroom(options: dict[str, Any]) -> float | None:
    text = options["headroom"] or ("auto" if options["replay"] else "0")
    if text == "auto":
        return None
    share = float(_number("--headroom", text, float))
    if not 0 <= share < 1:
        raise ConfigError(Mistake("--headroom", f"is {text}", "give 0 ≤ share < 1, or auto"))
    return share


def _idle_share(options: dict[str, Any]) -> float:
    share = float(options["idle_share"])
    if not 0 < share < 1:
        raise ConfigError(Mistake("--idle-share", f"is {share}", "give 0 < share < 1"))
    return share


def _above_0(place: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(Mistake(place, f"is {value}", "give a finite number above 0"))
    return value


def _number(place: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError as wrong:
        raise ConfigError(Mistake(place, f"is {text!r}", "give a number")) from wrong


def _chosen(option: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(text.split(",")) if text else known
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ConfigError(Mistake(option, f"unknown: {', '.join(unknown)}", f"the profiles have {', '.join(known)}"))
    return chosen


def _pairs(option: str, text: str | None, kind: Callable[[str], Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Mapping of an option such as `A100=4,H100=2`."""
    pairs: dict[str, Any] = {}
    mistakes = []
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        if name not in known:
            mistakes.append(Mistake(option, f"unknown GPU type {name!r}", f"the profiles have {', '.join(known)}"))
        elif name in pairs:
            mistakes.append(Mistake(option, f"{name} is given twice"))
        else:
            pairs[name] = _number(f"{option} {name}", value, kind)
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return pairs


def _mix_table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Cheapest mix per case (dollars per hour)")
    for name in ("workload", "slo", "rate", "cost", "bound", "gap", "seconds", "instances", "textbook", "its s"):
        table.add_column(name, justify="left" if name in ("workload", "slo", "instances") else "right")
    for line in map(line_of, outcomes):
        peer = line.get("peer")
        theirs = ("", "") if peer is None else (_dollars(peer), f"{peer['seconds']:.2f}")
        head = (line["workload"], line["slo"], f"{line['rate']:g}")
        if "infeasible" in line:
            table.add_row(*head, "none", "", "", f"{line['seconds']:.3f}", line["infeasible"], *theirs)
            continue
        mix = ", ".join(f"{count} {name}" for name, count in line["instances"].items() if count)
        figures = (f"{line['cost_per_hour']:.3f}", f"{line['bound']:.3f}", f"{line['gap']:.2%}")
        table.add_row(*head, *figures, f"{line['seconds']:.3f}", mix, *theirs)
    return table


def _dollars(peer: dict[str, Any]) -> str:
    cost = peer["cost_per_hour"]
    return "none" if cost is None else f"{cost:.3f}" + ("" if peer["proven"] else " unproven")


def _replay_table(lines: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Requests within the SLO: our routing with headroom, random routing, our routing without headroom"
    )
    for name in ("workload", "slo", "rate", "$/h", "headroom", "ours", "p50", "p99", "random", "no headroom"):
        table.add_column(name, justify="left" if name in ("workload", "slo") else "right")
    for line in lines:
        head = (line["workload"], line["slo"], f"{line['rate']:g}")
        if "infeasible" in line:
            table.add_row(*head, "none", line["infeasible"])
            continue
        extra = line["cost_per_hour"] - line["cost_without_headroom"]
        ours = line["weights"]
        table.add_row(
            *head,
            f"{line['cost_per_hour']:.2f}",
            f"{extra:.2f} ({line['headroom_share_of_cost']:.0%})",
            f"{ours['met_share']:.2%}",
            f"{ours['stretch_p50']:.2f}",
            f"{ours['stretch_p99']:.2f}",
            f"{line['random']['met_share']:.2%}",
            f"{line['weights_without_headroom']['met_share']:.2%}",
        )
    return table


if __name__ == "__main__":
    main()
