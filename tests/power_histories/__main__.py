"""Counts the instants of random histories at which devices may draw more than a budget; exit status 1 if any."""

import json
import sys
import time
from collections import Counter
from functools import partial
from multiprocessing import get_context

import click

from tests.power_histories.history import Outcome, history


@click.command(context_settings={"show_default": True})
@click.option("--histories", type=click.IntRange(1), default=10_000)
@click.option("--seed", type=int, default=1, help="Of the first one; the others have the next ones.")
@click.option("--no-reboots", is_flag=True, help="Without reboots and resets of drivers.")
@click.option("--jobs", type=click.IntRange(1), default=1)
def main(histories: int, seed: int, no_reboots: bool, jobs: int) -> None:
    """Random histories of 60 s: messages, processes, clocks, devices and controllers fail in every way."""
    began_s, found = time.monotonic(), list[Outcome]()
    run = partial(history, reboots=not no_reboots)
    with get_context("spawn").Pool(jobs) as pool:
        for outcome in pool.imap_unordered(run, range(seed, seed + histories), chunksize=8):
            found.append(outcome)
            if outcome.over_s:
                click.echo(f"seed {outcome.seed}: {outcome.over_s:g} s over by {100 * outcome.over:.1f} %", err=True)
            if len(found) % 500 == 0:
                click.echo(f"[{len(found)}/{histories}] {time.monotonic() - began_s:.0f} s", err=True)
    happened = sum((each.happened for each in found), Counter[str]())
    booted = [each for each in found if each.booted_over_s]
    summary = {
        "histories": histories,
        "seeds": [seed, seed + histories - 1],
        "events": dict(sorted(happened.items())),
        "leases_that_raised": sum(each.rises for each in found),
        "violations": sum(each.over_s > 0 for each in found),
        "over_after_boots": len(booted),
        "longest_after_boots_s": max((each.booted_over_s for each in booted), default=0.0),
        "most_after_boots": round(max((each.booted_over for each in booted), default=0.0), 3),
        "highest_heat": round(max(each.heat for each in found), 3),
    }
    click.echo(json.dumps(summary))
    sys.exit(1 if summary["violations"] else 0)


if __name__ == "__main__":
    main()
