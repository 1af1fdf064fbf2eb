"""Admission checks of Kueue: whether a workload that has its quota would have its seats too, and at what price."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from cluster.actions import HoldSeats, Start
from cluster.arrays import column
from cluster.errors import ActionError
from cluster.snapshot import PodTable, Snapshot
from cluster.workloads import Gang
from controller.api import core_v1, gpu_type, notation, structs
from controller.brain.inline import decisions_from
from controller.deciders.decisions import Decisions
from controller.deciders.packing import packer_for
from controller.kube.cache import Cache, Resource
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Write, WriteJob
from controller.loops.loop import ControlLoop, LoopContext, repeat
from controller.objects.own_objects import own_from
from controller.objects.read import Findings, Read
from controller.report.statuses import log_unwritten
from controller.settings import OperatorSettings
from controller.snapshot.nodes import TypeIndex, types_from
from controller.snapshot.pods import PodRow, pod_row
from placement.packing.planner import pack

VERSION, CONTROLLER = "kueue.x-k8s.io/v1beta2", "tonnage.dev/seat"
"""API of Kueue, and `spec.controllerName` of the AdmissionChecks that are answered here."""
EVERY_S, RETRY_S = 2.0, 10
"""Seconds between looks, and after which Kueue asks again where there is no seat; its quota is free meanwhile."""
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """Workload that waits for an answer."""

    name: str
    """`namespace/name`."""
    rows: tuple[PodRow, ...]
    """Its pods, as their controller will make them."""


def asked_by(name: str, spec: Object, status: Object, flavors: Mapping[str, Object], types: TypeIndex) -> Asked:
    """The workload, on nodes of the flavors that it got."""
    rows, given = list[PodRow](), status["admission"]["podSetAssignments"]
    flavor_of = {each["name"]: set(each.get("flavors", {}).values()) for each in given}
    for each in spec["podSets"]:
        pod = each["template"].get("spec", {})
        labels = dict(pod.get("nodeSelector", {}))
        for flavor in flavor_of.get(each["name"], ()):
            labels |= flavors.get(flavor, {}).get("nodeLabels", {})
        meta = {**each["template"].get("metadata", {}), "name": each["name"], "namespace": name.partition("/")[0]}
        made = structs.object_from({"metadata": meta, "spec": {**pod, "nodeSelector": labels}}, structs.Pod)
        rows += [pod_row(Read(made, core_v1.POD), types)] * int(each["count"])
    return Asked(name, tuple(rows))


def answers(now: Snapshot, several: Sequence[Asked], decisions: Decisions) -> list[tuple[bool, str]]:
    """Whether each workload would start as a gang beside all that waits, and on what, or why not."""
    rows, gangs = [row for each in several for row in each.rows], len(now.gangs)
    names = [f"{each.name} (asked for {n})" for each in several for n in range(len(each.rows))]
    of_gang = np.repeat(np.arange(gangs, gangs + len(several)), [len(each.rows) for each in several])
    shapes = tuple(dict.fromkeys(row.shape for row in rows))
    pods = PodTable.waiting(
        names,
        column(np.array([shapes.index(row.shape) for row in rows]), np.int64),
        shapes,
        gang=column(of_gang, np.int64),
        priority=column(np.array([row.priority for row in rows]), np.int64),
    )
    made = (Gang(f"{each.name} (asked for)", len(each.rows)) for each in several)
    seen = replace(now, pods=now.pods.plus(pods), gangs=(*now.gangs, *made))
    plan = pack(seen, packer_for(seen, decisions), preempt=decisions.preempt)
    held = (each.held.seats for each in plan.actions if isinstance(each, HoldSeats))
    node_of = {seat.pod: seat.node for seats in held for seat in seats if not seat.is_moved}
    node_of |= {each.pod: each.node for each in plan.actions if isinstance(each, Start)}
    why, prices = {each.workload: each.reason.words for each in plan.unplaced}, now.device_prices()
    found = list[tuple[bool, str]]()
    for n, each in enumerate(several):
        own = [name for name, gang in zip(names, of_gang.tolist(), strict=True) if gang == gangs + n]
        withheld = next((row.withheld.words for row in each.rows if row.withheld), "")
        if withheld or not node_of.keys() >= set(own):
            label = f"Gang/{each.name} (asked for)"
            found.append((False, f"no seat: {withheld or why.get(label, 'the plan ended before its turn')}"))
            continue
        at = [list(now.nodes.names).index(node_of[name]) for name in own]
        gpus = [row.shape.total_gpu_milli / 1000 for row in each.rows]
        usd = float(prices[at] @ np.array(gpus))
        found.append((True, f"{sum(gpus):g} devices on {len(set(at))} nodes, ${usd:.2f} an hour"))
    return found


class SeatChecks(ControlLoop):
    """Answers Kueue's AdmissionChecks of Tonnage, by the last snapshot."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._now: Snapshot | None = None
        self._workloads, self._checks, self._flavors = (
            Cache(
                Resource(f"kueue_{kind}", f"/apis/{VERSION}/{kind}", structs.OwnObject, kind == "workloads", {}, True)
            )
            for kind in ("workloads", "admissionchecks", "resourceflavors")
        )

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._workloads, self._checks, self._flavors)

    def start(self, context: LoopContext) -> dict[str, int]:
        self._context = context
        context.keep(repeat(self._turn, EVERY_S, "Kueue's admission checks were not answered"))
        return {}

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        self._now = snapshot
        return snapshot

    async def _turn(self) -> None:
        ours = {n: obj for n, obj in self._checks.all().items() if _plain(obj.spec)["controllerName"] == CONTROLLER}
        if self._now is None or not ours or not self._context.leadership.may_write():
            return
        since = {"lastTransitionTime": notation.rfc3339(self._context.clocks.wall())}
        active = {"type": "Active", "status": "True", "reason": "Answered", "message": "Tonnage answers it", **since}
        new = ((f"admissionchecks/{n}", obj) for n, obj in ours.items() if not _plain(obj.status).get("conditions"))
        jobs = [_job("AdmissionCheck", path, obj, {"conditions": [active]}) for path, obj in new]
        flavors = {name: _plain(obj.spec) for name, obj in self._flavors.all().items()}
        known = (own_from(n, gpu_type.KIND, o) for n, o in self._context.caches.own[gpu_type.KIND].all().items())
        types = types_from([each for each in known if isinstance(each, Read)], Findings())
        asked, about = list[Asked](), list[tuple[structs.OwnObject, list[str]]]()
        for name, obj in sorted(self._workloads.all().items()):
            status = _plain(obj.status)
            said = {each["name"]: each["state"] for each in status.get("admissionChecks", ())}
            if "admission" in status and (pending := [check for check in ours if said.get(check) == "Pending"]):
                asked.append(asked_by(name, _plain(obj.spec), status, flavors, types))
                about.append((obj, pending))
        found = await asyncio.to_thread(answers, self._now, asked, self._decisions) if asked else []
        for (is_seated, words), (obj, pending) in zip(found, about, strict=True):
            answer = {"state": "Ready"} if is_seated else {"state": "Retry", "requeueAfterSeconds": RETRY_S}
            path = f"namespaces/{obj.metadata.namespace}/workloads/{obj.metadata.name}"
            status = {"admissionChecks": [{"name": check, **answer, "message": words, **since} for check in pending]}
            jobs.append(_job("Workload", path, obj, status))
        for job, sent in zip(jobs, await self._context.reports_applier.send(jobs), strict=True):
            if isinstance(sent, ActionError):
                log_unwritten(job.about, sent)


def _plain(raw: msgspec.Raw) -> Object:
    found: Object = msgspec.json.decode(raw)
    return found


def _job(kind: str, path: str, obj: structs.OwnObject, status: Object) -> WriteJob:
    meta = {"name": obj.metadata.name, "uid": obj.metadata.uid}
    meta |= {"namespace": obj.metadata.namespace} if obj.metadata.namespace else {}
    body = {"apiVersion": VERSION, "kind": kind, "metadata": meta, "status": status}
    query = {"fieldManager": CONTROLLER, "force": "true"}
    return WriteJob(f"{kind}/{path}", Write("PATCH", f"/apis/{VERSION}/{path}/status", body, APPLY_PATCH, query))


def enabled(settings: OperatorSettings) -> SeatChecks | None:
    return SeatChecks(decisions_from(settings)) if settings.groups_of_others else None
