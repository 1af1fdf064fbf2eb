"""Judge of a composition, in memory and on a real server: by what the API lists alone, at the end and at each change.

The rules of single objects are the auditor's (`tests/controlplane/auditor.py`) and those of statuses `truth.py`'s; here
is what only a whole history has: who must be there, what may wait, and whether it is quiet afterwards.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.controlplane.auditor import GPU, audit
from tests.controlplane.faults.truth import untrue

Object = Mapping[str, Any]
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Answer:
    body: Object


class Listed:
    """Objects as the API lists them, for auditors that ask `kubectl get` or send a GET."""

    def __init__(self, by_kind: Mapping[str, Sequence[Object]]) -> None:
        """by_kind: objects by the plural of their kind; kinds that are missing have none."""
        self._by_kind = by_kind

    def get(self, kind: str, *_: str) -> Object:
        return {"items": list(self._by_kind.get(kind, ()))}

    def send(self, method: str, path: str) -> Answer:
        assert method == "GET"
        kind, namespace = path.rpartition("/")[2], path.partition("/namespaces/")[2].partition("/")[0]
        every = self._by_kind.get(kind, ())
        return Answer({"items": [each for each in every if each["metadata"].get("namespace") == namespace]})


@dataclass(frozen=True)
class Wanted:
    """What must be there once all is set right again."""

    pods: Iterable[str]
    """`namespace/name`."""
    least: Mapping[str, int]
    """Members that each gang needs."""
    strangers: Mapping[str, str]
    """Pods of others, with their uid: they stay as they are."""
    namespace: str
    shares: Mapping[str, int] = field(default_factory=dict)
    """Devices that the teams of these namespaces get whenever they ask."""


def violations(listed: Listed, wanted: Wanted, *, may_fail: bool = False) -> list[str]:
    """What is wrong at the end of a history; empty where nothing is.

    may_fail: whether kubelets had a reason to turn pods away, as where a node lost devices.
    """
    api: Any = listed
    found = audit(api, wanted.pods, wanted.least)
    parts = {
        "lost": found.lost,
        "failed": () if may_fail else found.failed,
        "over capacity": found.over_capacity,
        "double": found.double,
        "misplaced": found.misplaced,
        "gang broken": found.broken_gangs,
        "stranger": _touched(listed, wanted.strangers),
        "waits for nothing": idle(listed, wanted),
        "share not given": withheld(listed, wanted),
        "untrue": untrue(api, [wanted.namespace]),
    }
    return [f"{what}: {each}" for what, of_part in parts.items() for each in of_part]


def _touched(listed: Listed, strangers: Mapping[str, str]) -> Iterator[str]:
    there = {_name(pod): pod["metadata"] for pod in listed.get("pods")["items"]}
    for name, uid in strangers.items():
        meta = there.get(name)
        if meta is None or meta["uid"] != uid or meta.get("deletionTimestamp"):
            yield f"{name} is gone, or ends"


def idle(listed: Listed, wanted: Wanted) -> Iterator[str]:
    """Pods that wait although there is room, with nobody else who may be waiting for it."""
    pods = [pod for pod in listed.get("pods")["items"] if pod["status"].get("phase") not in ENDED]
    free = _free(listed, pods)
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName") and _name(pod) in set(wanted.pods)]
    by_gang: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in waiting:
        by_gang[pod["metadata"].get("labels", {}).get("tonnage.dev/gang", "")].append(pod)
    singles = by_gang.pop("", [])
    if not by_gang and len({_gpus(each) for each in singles}) == 1:
        for pod in singles:
            rooms = [room for _, labels, room in free if _selector(pod).items() <= labels.items()]
            if any(room >= _gpus(pod) for room in rooms):
                yield f"{_name(pod)} asks for {_gpus(pod)} and there is {max(rooms):g} on one node"
    placed = Counter(pod["metadata"].get("labels", {}).get("tonnage.dev/gang", "") for pod in pods
                     if pod["spec"].get("nodeName"))  # fmt: skip
    if len(by_gang) == 1 and not singles and (gang := next(iter(by_gang))) in wanted.least:
        members = by_gang[gang]
        missing = max(0, wanted.least.get(gang, 0) - placed[gang]) or 1
        rooms = [room for _, labels, room in free if _selector(members[0]).items() <= labels.items()]
        if len(members) >= missing and sum(int(room // _gpus(members[0])) for room in rooms) >= missing:
            yield f"gang {gang}: {missing} more members would fit into {rooms}"


def withheld(listed: Listed, wanted: Wanted) -> Iterator[str]:
    """Single pods that wait within the share of their team beside single ones of a team that is beyond its own."""
    pods = [pod for pod in listed.get("pods")["items"] if pod["status"].get("phase") not in ENDED]
    held: Counter[str] = Counter()
    for pod in pods:
        held[pod["metadata"]["namespace"]] += _gpus(pod) if pod["spec"].get("nodeName") else 0
    beyond = {space: held[space] - share for space, share in wanted.shares.items()}
    for pod in pods:
        own, asked = pod["metadata"]["namespace"], _gpus(pod)
        if _name(pod) not in set(wanted.pods) or pod["spec"].get("nodeName") or _gang(pod):
            continue
        if own not in beyond or beyond[own] + asked > 0:
            continue
        for node, labels, free in _free(listed, pods):
            there = (
                each
                for each in pods
                if each["spec"].get("nodeName") == node and not _gang(each) and _name(each) in set(wanted.pods)
            )
            takes = [
                _gpus(each)
                for each in there
                if (other := each["metadata"]["namespace"]) != own and 0 < _gpus(each) <= beyond.get(other, 0)
            ]
            if _selector(pod).items() <= labels.items() and any(free + each >= asked for each in takes):
                yield f"{_name(pod)} asks for {asked}, and others of {node} are beyond their share"
                break


def _gang(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get("tonnage.dev/gang", ""))


def _free(listed: Listed, pods: Sequence[Object]) -> list[tuple[str, Mapping[str, str], float]]:
    """Names, labels, and the devices that nobody has, of nodes that take pods."""
    taken: Counter[str] = Counter()
    for pod in pods:
        taken[pod["spec"].get("nodeName") or ""] += _gpus(pod)
    return [
        (name, node["metadata"]["labels"], float(node["status"]["allocatable"].get(GPU, 0)) - taken[name])
        for node in listed.get("nodes")["items"]
        if not node.get("spec", {}).get("unschedulable") and not node.get("spec", {}).get("taints")
        for name in [node["metadata"]["name"]]
    ]


def _selector(pod: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = pod["spec"].get("nodeSelector", {})
    return found


def _gpus(pod: Object) -> int:
    return sum(int(each.get("resources", {}).get("limits", {}).get(GPU, 0)) for each in pod["spec"]["containers"])


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
