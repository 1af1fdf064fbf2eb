"""Emptying a node: who leaves, who may not, where each would start again, and whom it concerns. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cluster.actions import Bind, Evict
from cluster.cordon import cordoned
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.api.labels import CHOSEN_NODE_ANNOTATION, GANG_LABEL, SERVICE_LABEL
from controller.placers.gate import HOSTNAME_LABEL
from placement.engine.packer import Packer
from placement.packing.planner import pack

Object = dict[str, Any]
Fate = Literal["leaves", "stays", "blocks"]


MIRROR = "kubernetes.io/config.mirror"
"""On a pod that stands for one which the kubelet runs from a file: it cannot be evicted."""


@dataclass(frozen=True, slots=True)
class Consent:
    """What may be lost, by kubectl's flags."""

    ignore_daemonsets: bool = False
    force: bool = False
    """Evict pods that nobody makes anew."""
    delete_emptydir_data: bool = False


@dataclass(frozen=True, slots=True)
class Guest:
    """A pod on the node."""

    namespace: str
    name: str
    uid: str
    fate: Fate
    why: str = ""
    """Why it stays, or what would let it go."""
    gang: str = ""
    """`namespace/name`."""
    service: str = ""
    is_pinned: bool = False
    """Tonnage wrote its node into it, through a node selector that the pod that replaces it will not have."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a pod that leaves would start again."""

    pod: str
    node: str | None
    """None: nowhere now."""
    devices: tuple[int, ...] = ()
    why: str = ""
    """Why nowhere."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    seats: tuple[Seat, ...]
    concerned: tuple[str, ...]
    """What it means for gangs and services, a sentence each."""


def guests(pods: Iterable[Object], consent: Consent) -> tuple[Guest, ...]:
    """What becomes of each pod of the node, by kubectl's rules, in order of their names."""
    made = (_guest(pod, *_fate(pod, consent)) for pod in pods)
    return tuple(sorted(made, key=lambda guest: guest.full_name))


def _guest(pod: Object, fate: Fate, why: str) -> Guest:
    metadata = pod["metadata"]
    labels, namespace = metadata.get("labels") or {}, metadata.get("namespace", "default")
    gang, service = labels.get(GANG_LABEL), labels.get(SERVICE_LABEL)
    return Guest(
        namespace=namespace,
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        fate=fate,
        why=why,
        gang=f"{namespace}/{gang}" if gang else "",
        service=f"{namespace}/{service}" if service else "",
        is_pinned=CHOSEN_NODE_ANNOTATION in (metadata.get("annotations") or {}),
    )


def _fate(pod: Object, consent: Consent) -> tuple[Fate, str]:
    metadata = pod["metadata"]
    owner = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), None)
    if MIRROR in (metadata.get("annotations") or {}):
        return "stays", "the kubelet runs it from a file"
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return "leaves", ""
    if owner and owner["kind"] == "DaemonSet":
        if consent.ignore_daemonsets:
            return "stays", "its DaemonSet would start it again at once"
        return "blocks", "belongs to a DaemonSet: --ignore-daemonsets leaves it where it is"
    if owner is None and not consent.force:
        return "blocks", "nobody would make it anew: --force lets it go for good"
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    if any("emptyDir" in volume for volume in volumes) and not consent.delete_emptydir_data:
        return "blocks", "keeps data in an emptyDir: --delete-emptydir-data lets it go"
    return "leaves", "" if owner else "nobody makes it anew"


def what_if(now: Snapshot, node: str, leaving: Sequence[Guest], packer_of: Callable[[Snapshot], Packer]) -> WhatIf:
    """Where the same packer would put what leaves, with the node closed and nothing else stopped for it.

    packer_of: makes the packing engine for a snapshot. Pods that are not in the snapshot, because they have ended, are
    passed over.
    """
    known = {guest.full_name for guest in leaving if guest.full_name in now.pods.names}
    pinned = [guest.full_name for guest in leaving if guest.is_pinned and guest.full_name in known]
    after = _unpinned(cordoned(now, node), pinned).after(Evict(name, node) for name in sorted(known))
    plan = pack(after, packer_of(after), preempt=False)
    binds = {step.action.pod: step.action for step in plan.steps() if isinstance(step.action, Bind)}
    reasons = {each.workload: each.reason.words for each in plan.unplaced}
    seats = tuple(_seat(guest, binds, reasons) for guest in leaving if guest.full_name in known)
    return WhatIf(seats, tuple(_concerned(now, leaving, seats)))


def _unpinned(now: Snapshot, names: Sequence[str]) -> Snapshot:
    """The snapshot in which these pods may run on any node that they were made for."""
    pods = now.pods
    shapes, shape = list(pods.shapes), pods.shape.copy()
    for name in names:
        row = pods.names.row(name)
        assert row is not None  # noqa: S101  # the caller has looked
        terms = tuple(tuple(r for r in term if r.key != HOSTNAME_LABEL) for term in shapes[shape[row]].node_terms)
        shapes.append(replace(shapes[shape[row]], node_terms=terms if all(terms) else ()))
        shape[row] = len(shapes) - 1
    return replace(now, pods=replace(pods, shape=shape, shapes=tuple(shapes)))


def _seat(guest: Guest, binds: Mapping[str, Bind], reasons: Mapping[str, str]) -> Seat:
    bind = binds.get(guest.full_name)
    if bind is not None:
        return Seat(guest.full_name, bind.node, bind.devices)
    why = reasons.get(f"Pod/{guest.full_name}") or reasons.get(f"Gang/{guest.gang}") or "no node has room for it"
    return Seat(guest.full_name, None, (), why)


def _concerned(now: Snapshot, leaving: Sequence[Guest], seats: Sequence[Seat]) -> Iterator[str]:
    placed = {seat.pod for seat in seats if seat.node}
    for gang, count in sorted(Counter(guest.gang for guest in leaving if guest.gang).items()):
        again = sum(1 for guest in leaving if guest.gang == gang and guest.full_name in placed)
        yield f"Gang/{gang} loses {count} members{_members(now, gang)}; {again} of them can start elsewhere"
    runs = now.pods.node != PENDING
    for service, count in sorted(Counter(guest.service for guest in leaving if guest.service).items()):
        running = sum(1 for owner, is_there in zip(now.pods.owner, runs, strict=True) if is_there and owner == service)
        again = sum(1 for guest in leaving if guest.service == service and guest.full_name in placed)
        meanwhile = f"runs {running - count} of {running} instances until they are replaced"
        yield f"ModelService/{service} {meanwhile}; {again} of {count} can start elsewhere"


def _members(now: Snapshot, name: str) -> str:
    row = next((n for n, gang in enumerate(now.gangs) if gang.name == name), None)
    if row is None:
        return ""
    running = int(((now.pods.gang == row) & (now.pods.node != PENDING)).sum())
    return f" of {running} that run, {now.gangs[row].min_members} must run together"
