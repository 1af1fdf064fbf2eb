"""`python -m tests.controlplane.faults`: injects faults into operators on a real control plane, and reports."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from cluster.errors import BuildError
from deploy.release_files import NoHelmError
from simulator.controlplane import processes
from simulator.controlplane.binaries import control_plane_programs, progress_on
from tests.controlplane.faults.report import SCENARIOS, Result, played, table_of, why
from tests.controlplane.faults.stage import Stage, stage
from tests.controlplane.keeper import keep
from tests.rigs import chart


@click.command(context_settings={"show_default": True})
@click.option("--only", default=",".join(SCENARIOS), help="Scenarios, separated by commas.")
@click.option("--nodes", type=click.IntRange(20), default=140, help="Simulated nodes of 8 GPUs.")
@click.option("--pods", type=click.IntRange(24), default=120, help="Pods of one wave, a third of them in gangs of 8.")
@click.option("--rounds", type=click.IntRange(0), default=0, help="Of each scenario; 0: as many as each has by itself.")
@click.option("--seed", type=int, default=1, help="Of all chance in faults and pods; the timing is the machine's.")
@click.option("--json", "json_to", type=click.Path(path_type=Path), help="JSON lines to this file.")
def main(only: str, nodes: int, pods: int, rounds: int, seed: int, json_to: Path | None) -> None:
    """Exit status 1 when a pod was lost, a device given twice, a gang broken, a status untrue, something did not
    converge, or canaries waited for more than two seconds (p95)."""
    names = [name for name in only.split(",") if name]
    if unknown := set(names) - SCENARIOS.keys():
        raise click.UsageError(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    try:
        programs = control_plane_programs(progress_on(sys.stderr))
    except BuildError as error:
        raise click.ClickException(f"no control plane: {error}") from error
    if unshipped := _helm_missing():
        raise click.ClickException(unshipped)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves no server behind
    words = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        keep(Path(folder), processes.process_with("faults", os.getpid()))
        with stage(programs, Path(folder), nodes, seed) as there:
            results = play_all(there, names, pods, rounds, words)
    if json_to:
        json_to.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in results), encoding="utf-8")
    Console(width=None if sys.stdout.isatty() else 150).print(table_of(results))
    sys.exit(0 if all(each.is_good and each.is_in_time for each in results) else 1)


def _helm_missing() -> str:
    try:
        chart.rendered()
    except NoHelmError as error:
        return str(error)
    return ""


def play_all(there: Stage, names: Sequence[str], pods: int, rounds: int, words: Console) -> list[Result]:
    results: list[Result] = []
    for name in names:
        words.print(f"playing {name}")
        results.append(played(there, name, pods=pods, rounds=rounds or None))
        words.print(f"  {'ok' if results[-1].is_good else 'FAILED'}, {results[-1].converged_most_s:g} s at most")
        if not results[-1].is_good or results[-1].notes:
            words.print(why(results[-1]), soft_wrap=True)
    return results


if __name__ == "__main__":
    main()
