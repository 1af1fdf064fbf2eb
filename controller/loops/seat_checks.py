"""Admission checks of Kueue: whether a workload that has its quota would have its seats too, and at what price."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cluster.actions import HoldSeats, Start
from cluster.arrays import column
from cluster.errors import ActionError
from cluster.held_seats import DEADLINE_S, in_force, seat_of, text_of, with_room_kept
from cluster.snapshot import PENDING, HeldSeat, HeldSeats, PodTable, Snapshot
from cluster.workloads import Gang
from controller.api import core_v1, gpu_type, notation, structs
from controller.api.labels import MANAGED_LABEL
from controller.brain.inline import decisions_from
from controller.deciders.decisions import Decisions
from controller.deciders.packing import packer_for
from controller.kube.cache import Cache, Resource
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Write, WriteJob
from controller.kube_world.cached_view import plain_once
from controller.loops.loop import ControlLoop, LoopContext, repeat
from controller.objects.own_objects import own_from
from controller.objects.read import Findings, Read
from controller.report.statuses import log_unwritten
from controller.settings import OperatorSettings
from controller.snapshot.held import held_from
from controller.snapshot.nodes import TypeIndex, types_from
from controller.snapshot.pods import PodRow, pod_row
from placement.packing.planner import pack

VERSION, CONTROLLER = "kueue.x-k8s.io/v1beta2", "tonnage.dev/seat"
"""API of Kueue, and `spec.controllerName` of the AdmissionChecks that are answered here."""
EVERY_S, RETRY_S = 2.0, 10
"""Seconds between looks, and after which Kueue asks again where there is no seat; its quota is free meanwhile."""
MOST = 64
"""Workloads of one look; the others are next, when these have their answers."""
SEATS = "tonnage.dev/answered-seats"
"""Annotation of a workload's answer, and of its pods, with the seats that are held until they come."""
MOST_HELD = 64
"""Pods of a workload whose seats are held. Chosen: each carries the annotation, of 200 bytes a pod."""
MAKERS = ("Job/", "RayCluster/", "PyTorchJob/", "TFJob/", "XGBoostJob/", "PaddleJob/", "JAXJob/")
"""Owners of workloads that are their pods' controllers, too: by these the pods are known for which seats are held."""
MOST_PODS = 4096
"""Pods of a workload that is answered."""
Object = Mapping[str, Any]


Answer = tuple[str, tuple[HeldSeat, ...]]
"""What a workload is told, and its seats; without any, it has none."""


class Workload(structs.OwnObject, frozen=True):
    """Kueue's Workload, with who made it."""

    metadata: structs.PodMeta


def pods_of(name: str, spec: Object, status: Object, flavors: Mapping[str, Object], types: TypeIndex) -> list[PodRow]:
    """Pods of a workload as its controller will make them, on nodes of the flavors that it got."""
    rows, given = list[PodRow](), status["admission"]["podSetAssignments"]
    flavors_of = {each["name"]: each.get("flavors", {}).values() for each in given}
    if sum(int(each["count"]) for each in spec["podSets"]) > MOST_PODS:
        raise ValueError(f"it has more than {MOST_PODS} pods")
    for each in spec["podSets"]:
        pod, meta = each["template"].get("spec", {}), each["template"].get("metadata", {})
        labels = dict(pod.get("nodeSelector", {}))
        for flavor in flavors_of.get(each["name"], ()):
            labels |= flavors.get(flavor, {}).get("nodeLabels", {})
        meta = {**meta, "name": each["name"], "namespace": name.partition("/")[0]}
        made = structs.object_from({"metadata": meta, "spec": {**pod, "nodeSelector": labels}}, structs.Pod)
        rows += [pod_row(Read(made, core_v1.POD), types)] * int(each["count"])
    return rows


def answers(now: Snapshot, asked: Mapping[str, Sequence[PodRow]], decisions: Decisions) -> dict[str, Answer]:
    """Whether each workload would start as a gang beside all that waits, and on what, or why not; by its name."""
    rows = [(f"{name} (asked for)", row) for name, own in asked.items() for row in own]
    gangs = tuple(Gang(f"{name} (asked for)", len(own)) for name, own in asked.items())
    number = {gang.name: len(now.gangs) + n for n, gang in enumerate(gangs)}
    shapes = tuple(dict.fromkeys(row.shape for _, row in rows))
    pods = PodTable.waiting(
        [f"{gang} {n}" for n, (gang, _) in enumerate(rows)],
        column(np.array([shapes.index(row.shape) for _, row in rows]), np.int64),
        shapes,
        gang=column(np.array([number[gang] for gang, _ in rows]), np.int64),
        priority=column(np.array([row.priority for _, row in rows]), np.int64),
    )
    seen = replace(now, pods=now.pods.plus(pods), gangs=(*now.gangs, *gangs))
    plan = pack(seen, packer_for(seen, decisions), preempt=decisions.preempt)
    held = (each.held.seats for each in plan.actions if isinstance(each, HoldSeats))
    at = {seat.pod: (seat.node, seat.devices) for seats in held for seat in seats if not seat.is_moved}
    at |= {each.pod: (each.node, each.devices) for each in plan.actions if isinstance(each, Start)}
    found = dict[str, Answer]()
    for name, own in asked.items():
        own_names = [f"{gang} {n}" for n, (gang, _) in enumerate(rows) if gang == f"{name} (asked for)"]
        if withheld := next((row.withheld for row in own if row.withheld), None):
            found[name] = f"no seat: {withheld.words}", ()
        elif not at.keys() >= {*own_names}:
            why = (each.reason.words for each in plan.unplaced if each.workload == f"Gang/{name} (asked for)")
            found[name] = f"no seat: {next(why, 'the plan ended before its turn')}", ()
        else:
            seats = tuple(
                seat_of(each, row.shape, *at[each], is_moved=True) for each, row in zip(own_names, own, strict=True)
            )
            gpus = [row.shape.total_gpu_milli / 1000 for row in own]
            usd = float(now.device_prices()[np.array([now.nodes.names.row(seat.node) for seat in seats])] @ gpus)
            nodes = len({seat.node for seat in seats})
            found[name] = f"{sum(gpus):g} devices on {nodes} nodes, ${usd:.2f} an hour", seats
    return found


def with_answered(now: Snapshot, answered: Iterable[HeldSeats], pods: Mapping[str, structs.Pod]) -> Snapshot:
    """The snapshot in which the seats of answers are held: for nobody until all pods of the workload wait, then for
    these; once one of them has started, they are as any others.
    """
    known = {each.holder for each in now.held}
    new = [each for each in in_force(answered, now.at_s) if each.holder not in known]
    if not new:
        return now
    table, since_s, found = now.pods, min(each.since_s for each in new), list[HeldSeats]()
    started = np.zeros(len(table)) if table.started_s is None else table.started_s
    rows_of = defaultdict[str, list[int]](list)
    for row in np.flatnonzero((table.node == PENDING) | (started >= since_s)).tolist():
        if (pod := pods.get(table.names[row])) is not None:
            rows_of[pod.metadata.controller].append(row)
    for held in new:
        rows, takers = rows_of[held.seats[0].owner], list[HeldSeat]()
        if any(table.node[row] != PENDING for row in rows):
            continue
        for seat in held.seats if len(rows) >= len(held.seats) else ():
            asked = len(seat.devices), seat.gpu_milli
            shapes = {row: table.shapes[table.shape[row]] for row in rows}
            for row in [row for row, shape in shapes.items() if (shape.gpus, shape.gpu_milli) == asked][:1]:
                rows.remove(row)
                takers.append(replace(seat, pod=table.names[row], taker=table.names[row], is_moved=False))
        found.append(replace(held, seats=tuple(takers) or held.seats))
    kept = with_room_kept(replace(now, held=tuple(found)))
    return replace(kept, held=(*now.held, *found))


class SeatChecks(ControlLoop):
    """Answers Kueue's AdmissionChecks of Tonnage, by the last snapshot, in the namespaces in which Tonnage works."""

    def __init__(self, decisions: Decisions, *, labelled_only: bool = False) -> None:
        """labelled_only: whether it works in labelled namespaces alone."""
        self._decisions, self._labelled_only = decisions, labelled_only
        self._workloads = Cache(Resource("kueue_workloads", f"/apis/{VERSION}/workloads", Workload, is_optional=True))
        self._checks, self._flavors = (
            Cache(Resource(f"kueue_{kind}", f"/apis/{VERSION}/{kind}", structs.OwnObject, False, is_optional=True))
            for kind in ("admissionchecks", "resourceflavors")
        )

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return self._workloads, self._checks, self._flavors

    def start(self, context: LoopContext) -> dict[str, int]:
        self._context = context
        context.keep(repeat(self._turn, EVERY_S, "Kueue's admission checks were not answered"))
        return {}

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which the seats are held that answers named."""
        answered, ours = list[HeldSeats](), self._ours()
        for name, obj in self._workloads.all().items():
            status = bytes(obj.status)
            for said in plain_once(status).get("admissionChecks", ()) if SEATS.encode() in status else ():
                texts = ((each.get("annotations") or {}).get(SEATS, "") for each in said.get("podSetUpdates", ()))
                is_ready = said.get("name") in ours and said.get("state") == "Ready"
                if is_ready and (held := held_from(f"Workload/{name}", next(texts, ""))):
                    seats = (replace(seat, owner=obj.metadata.controller) for seat in held.seats)
                    answered.append(replace(held, seats=tuple(seats)))
        return with_answered(snapshot, answered, self._context.caches.pods.all()) if answered else snapshot

    def _ours(self) -> dict[str, structs.OwnObject]:
        return {
            n: obj
            for n, obj in self._checks.all().items()
            if structs.plain(obj.spec).get("controllerName") == CONTROLLER
        }

    async def _turn(self) -> None:
        context, workloads, of_flavors = self._context, self._workloads.all(), self._flavors.all()
        ours = self._ours()
        if self.seen is None or not ours or not context.leadership.may_write():
            return
        since = {"lastTransitionTime": notation.rfc3339(context.clocks.wall())}
        active = {"type": "Active", "status": "True", "reason": "Answered", "message": "Tonnage answers it", **since}
        new = ((n, obj) for n, obj in ours.items() if not structs.plain(obj.status).get("conditions"))
        jobs = [_job("AdmissionCheck", f"admissionchecks/{n}", obj, {"conditions": [active]}) for n, obj in new]
        flavors = {name: structs.plain(obj.spec) for name, obj in of_flavors.items()}
        known = (own_from(n, gpu_type.KIND, obj) for n, obj in context.caches.own[gpu_type.KIND].all().items())
        types = types_from([each for each in known if isinstance(each, Read)], Findings())
        spaces = context.caches.beside["Namespace"].all() if self._labelled_only else {}
        managed = {n for n, each in spaces.items() if each.metadata.labels.get(MANAGED_LABEL) == "true"}
        asked, pending = dict[str, list[PodRow]](), dict[str, list[str]]()
        found = dict[str, Answer]()
        for name, obj in sorted(workloads.items()):
            status = plain_once(bytes(obj.status))
            said = {each.get("name"): each.get("state") for each in status.get("admissionChecks", ())}
            waits = [check for check in ours if said.get(check) == "Pending"]
            is_ours = not self._labelled_only or name.partition("/")[0] in managed
            if "admission" not in status or not waits or not is_ours or len(pending) == MOST:
                continue
            pending[name] = waits
            try:
                asked[name] = pods_of(name, structs.plain(obj.spec), status, flavors, types)
            except Exception as error:  # noqa: BLE001 - what one of them holds keeps no other from its answer
                found[name] = f"no seat: its pods cannot be read: {error}"[:1024], ()
        now, at_s = self.add_to(self.seen), context.clocks.wall()
        found |= await asyncio.to_thread(answers, now, asked, self._decisions) if asked else {}
        for name, (words, seats) in found.items():
            answer = (
                {"state": "Ready"}
                if seats or not asked.get(name, True)
                else {"state": "Retry", "requeueAfterSeconds": RETRY_S}
            )
            of_all = [{"name": check, **answer, "message": words, **since} for check in pending[name]]
            if 0 < len(seats) <= MOST_HELD and (owner := workloads[name].metadata.controller).startswith(MAKERS):
                held = HeldSeats(name, at_s, at_s + DEADLINE_S, tuple(replace(seat, owner=owner) for seat in seats))
                first = structs.plain(workloads[name].spec)["podSets"][0]["name"]
                of_all[0]["podSetUpdates"] = [{"name": first, "annotations": {SEATS: text_of(held)}}]
            path = f"namespaces/{name.replace('/', '/workloads/')}"
            jobs.append(_job("Workload", path, workloads[name], {"admissionChecks": of_all}))
        for job, sent in zip(jobs, await context.reports_applier.send(jobs), strict=True):
            if isinstance(sent, ActionError):
                log_unwritten(job.about, sent)


def _job(kind: str, path: str, obj: structs.OwnObject, status: Object) -> WriteJob:
    space = {"namespace": obj.metadata.namespace} if obj.metadata.namespace else {}
    meta = {"name": obj.metadata.name, "uid": obj.metadata.uid, **space}
    body = {"apiVersion": VERSION, "kind": kind, "metadata": meta, "status": status}
    query = {"fieldManager": CONTROLLER, "force": "true"}
    return WriteJob(f"{kind}/{path}", Write("PATCH", f"/apis/{VERSION}/{path}/status", body, APPLY_PATCH, query))


def enabled(settings: OperatorSettings) -> SeatChecks | None:
    labelled_only = settings.managed_namespaces == "labelled"
    made = SeatChecks(decisions_from(settings), labelled_only=labelled_only)
    return made if settings.groups_of_others else None
