"""A snapshot from manifests: everything checked against everything else, and what is worth knowing said."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from cluster.arrays import IntArray
from cluster.errors import Mistake
from cluster.pods import PENDING, PodTable
from cluster.snapshot import Snapshot
from controller.api.flaw import Path
from controller.api.labels import GANG_LABEL, SERVICE_LABEL
from controller.api.suggestions import meant
from controller.objects.findings import Findings
from controller.objects.manifests import Manifests
from controller.objects.read import Note
from controller.snapshot.builder import FACTS, Fact, Picture, Seen


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot, and what its reader should know of how it came about."""

    snapshot: Snapshot
    notes: tuple[Note, ...] = ()


def snapshot_from(manifests: Manifests, *, at_s: float = 0.0, facts: tuple[Fact, ...] = FACTS) -> Observed:
    """The cluster that these manifests describe.

    Raises ConfigError with every contradiction between them: names that do not exist, a fleet without nodes for its
    pods, demand that no profile reaches. In files that is a slip of the pen; in a live cluster, where objects come and
    go one by one, it is Tuesday, and the picture leaves out what it concerns.
    """
    picture, findings = pictured(manifests, facts), Findings(manifests.notes)
    seen = picture.seen(at_s)
    for mistake in (*seen.mistakes, *_no_fleet(manifests), *_dangling(manifests, seen)):
        findings.mistake(mistake)
    findings.stop_on_mistakes()
    picture.note(seen.snapshot, findings)
    note_snapshot(seen.snapshot, findings)
    return Observed(seen.snapshot, findings.notes)


def pictured(manifests: Manifests, facts: tuple[Fact, ...] = FACTS) -> Picture:
    picture = Picture(facts=facts)
    for own in manifests.own:
        picture.put_own(own)
    for node in manifests.nodes:
        picture.put_node(node)
    for pod in manifests.pods:
        picture.put_pod(pod)
    return picture


def _no_fleet(manifests: Manifests) -> Iterator[Mistake]:
    """Pods without any node are a fleet that was forgotten; services alone may ask what to buy."""
    alive = [read for read in manifests.pods if not read.object.holds_nothing]
    if alive and not manifests.nodes:
        problem = f"there is no Node for {len(alive)} pod(s)"
        yield alive[0].mistake((), problem, "add the nodes of the fleet")


def _dangling(manifests: Manifests, seen: Seen) -> Iterator[Mistake]:
    known: dict[str, tuple[str, ...]] = {
        "Node": tuple(read.name for read in manifests.nodes),
        "Gang": tuple(read.name for read in manifests.gangs),
        "ModelService": tuple(read.name for read in manifests.services),
    }
    paths: dict[str, Path] = {
        "Node": ("spec", "nodeName"),
        "Gang": ("metadata", "labels", GANG_LABEL),
        "ModelService": ("metadata", "labels", SERVICE_LABEL),
    }

    @cache
    def remedy(kind: str, namespace: str, name: str) -> str:
        prefix = f"{namespace}/" if namespace else ""
        return meant(name, (each.removeprefix(prefix) for each in known[kind] if each.startswith(prefix)))

    for each in seen.dangling:
        namespace, _, name = each.name.rpartition("/")
        problem = f"there is no {each.kind} {name!r}" + (f" in {namespace}" if namespace else "")
        yield each.read.mistake(paths[each.kind], problem, remedy(each.kind, namespace, name))


def note_snapshot(snapshot: Snapshot, findings: Findings) -> None:
    """What the reader of a plan should know that shows only in the whole."""
    _note_gangs(snapshot, findings)
    _note_overcommitted(snapshot, findings)


def _note_gangs(snapshot: Snapshot, findings: Findings) -> None:
    for row, gang in enumerate(snapshot.gangs):
        there = int((snapshot.pods.gang == row).sum())
        if there < gang.min_members:
            words = f"{there} of its {gang.min_members} members are there: none can start before the rest is"
            figures = {"members": there, "min_members": gang.min_members}
            findings.note(f"Gang/{gang.name}", "GangIncomplete", words, figures)


def _note_overcommitted(snapshot: Snapshot, findings: Findings) -> None:
    free, nodes = snapshot.free(), snapshot.nodes
    short = {"cpu_milli": free.cpu_milli, "memory_bytes": free.memory_bytes}
    if free.gpu_milli.shape[1]:
        short["gpu_milli"] = free.gpu_milli.min(axis=1)
    _add_devices_missing(short, snapshot.pods, nodes.gpus)
    for row in np.flatnonzero(np.any([left < 0 for left in short.values()], axis=0)):
        figures = {name: float(-left[row]) for name, left in short.items() if left[row] < 0}
        words = f"its pods hold more than it has ({', '.join(figures)}): nothing is added there"
        findings.note(f"Node/{nodes.names[int(row)]}", "OverCommitted", words, figures)


def _add_devices_missing(short: dict[str, IntArray], pods: PodTable, gpus: IntArray) -> None:
    """Pods that ask for more devices than their node has hold what there is, which the free columns cannot show."""
    missing = np.zeros(len(gpus), dtype=np.int64)
    for row in np.flatnonzero(pods.node != PENDING):
        node, asked = pods.node[row], pods.shapes[pods.shape[row]].gpus
        missing[node] = min(missing[node], gpus[node] - asked)
    short["gpus"] = missing
