"""`python -m tests.controlplane.oracle`: Tonnage beside kube-scheduler's filters on random clusters, as a table."""

import argparse
import asyncio
import gzip
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from simulator.controlplane.binaries import control_plane_programs, progress_on
from simulator.controlplane.commands import Folder
from simulator.controlplane.server import down
from tests.controlplane.oracle.comparison import Comparison
from tests.controlplane.oracle.joint import Joint, check_plan
from tests.controlplane.oracle.kube_filters import Judged, kube_filters
from tests.controlplane.oracle.live import live
from tests.controlplane.oracle.random_clusters import random_cluster

SHOWN = 20
"""Differences that are printed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=300, help="number of random clusters, each with ten pods")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first; the others follow")
    parser.add_argument("--keep", type=Path, help="file to keep the clusters and kube-scheduler's verdicts in")
    parser.add_argument("--kept", type=Path, help="compare with the verdicts of this file; no control plane is needed")
    parser.add_argument("--joint", action="store_true", help="plan the pods of a cluster together, and check each step")
    parser.add_argument("--live", choices=("bind", "gate"), help="let the operator place 300 pods in this mode")
    options = parser.parse_args()
    if options.live:
        with tempfile.TemporaryDirectory() as path:
            found = live(control_plane_programs(progress_on(sys.stderr)), Path(path), options.live, seed=options.seed)
        print(found)  # noqa: T201
        return 0 if found.holds else 1
    if options.joint:
        return asyncio.run(check_joint_plans(range(options.seed, options.seed + options.clusters)))
    comparison = Comparison()
    if options.kept:
        for judged in kept(options.kept):
            comparison.add(judged)
    else:
        seeds = range(options.seed, options.seed + options.clusters)
        asyncio.run(judge(seeds, comparison, options.keep))
    print(comparison.table())  # noqa: T201
    for each in comparison.differences[:SHOWN]:
        print(each)  # noqa: T201
    print(f"refused where kube-scheduler allows, by reason:\n{comparison.explained()}")  # noqa: T201
    return 0 if comparison.holds else 1


async def judge(seeds: range, comparison: Comparison, keep: Path | None) -> None:
    """Asks kube-scheduler about the clusters of these seeds on a server of its own."""
    programs = control_plane_programs(progress_on(sys.stderr))
    with tempfile.TemporaryDirectory() as path:
        folder, began_s = Folder(Path(path) / "server"), time.monotonic()
        try:
            async with kube_filters(folder, programs) as filters:
                for number, seed in enumerate(seeds):
                    judged = await filters.judge(random_cluster(seed))
                    if keep is not None:
                        with gzip.open(keep, "ab" if number else "wb", compresslevel=5) as file:
                            file.write(msgspec.json.encode(judged) + b"\n")
                    comparison.add(judged)
                    if number % 20 == 19:
                        took_s = time.monotonic() - began_s
                        print(f"{number + 1} clusters in {took_s:.0f} s", file=sys.stderr)  # noqa: T201
        finally:
            down(folder, delete=True)


async def check_joint_plans(seeds: range) -> int:
    """Plans each cluster's pods together and asks kube-scheduler about each step; the exit status."""
    joint = Joint()
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(Path(path) / "server")
        try:
            async with kube_filters(folder, control_plane_programs(progress_on(sys.stderr))) as filters:
                for seed in seeds:
                    await check_plan(filters, random_cluster(seed), joint)
        finally:
            down(folder, delete=True)
    print("\n".join((*joint.wrong, f"{joint.placed} placed, {len(joint.wrong)} wrong, {joint.later} later")))  # noqa: T201
    return 1 if joint.wrong else 0


def kept(file: Path) -> Iterator[Judged]:
    """What an earlier run kept."""
    with gzip.open(file, "rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=Judged)


if __name__ == "__main__":
    sys.exit(main())
