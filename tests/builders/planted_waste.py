"""Clusters with waste of known kinds and amounts, beside things that only look like it; and a judge of advice on them.

`python -m tests.builders.planted_waste 40 1000` prints, for so many clusters from that seed, how much of the planted
dollars was found, how much of what was found was planted, and whether each advice saves what it says when a simulated
cluster applies it alone.
"""

import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from cli.inputs.planning import Planning, decider, packer_of
from cluster.occupancy import Occupancy
from cluster.snapshot import PENDING, Snapshot
from controller.objects.manifests import read_manifests
from controller.queries.advice import Advice, AdviceReport, advise, unusable_devices
from controller.queries.holders import holders, replaced_in
from controller.snapshot.from_manifests import snapshot_from
from simulator.world import SimulatedWorld

Object = dict[str, Any]
NOW_S = 1_767_225_600.0 + 90 * 86_400.0
PRICES = {"h100": 7.0, "a100": 3.5, "l4": 0.7}
MEMORY = {"h100": "80Gi", "a100": "80Gi", "l4": "24Gi"}


def instant(ago_s: float) -> str:
    from controller.api.notation import rfc3339

    return rfc3339(NOW_S - ago_s)


@dataclass
class Planted:
    """Objects of a cluster, and what is wasted in it: dollars by (part of the cluster, topic)."""

    chance: random.Random
    objects: list[Object] = field(default_factory=list)
    truth: dict[tuple[str, str], float] = field(default_factory=dict)
    used_share: dict[str, float] = field(default_factory=dict)
    part: str = ""

    def begin(self, part: str) -> None:
        self.part = part

    def waste(self, topic: str, dollars: float) -> None:
        self.truth[self.part, topic] = dollars

    def node(
        self,
        name: str,
        kind: str = "a100",
        gpus: int = 8,
        *,
        cpu: int = 96,
        offered: int | None = None,
        capacity: int | None = None,
        ready: str = "True",
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> str:
        full = f"{self.part}-{name}"
        have = {"cpu": str(cpu), "memory": "900Gi", "pods": "110"}
        count = gpus if offered is None else offered
        product = {"nvidia.com/gpu.product": kind} if gpus else {}
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": full,
                    "uid": full,
                    "labels": {"kubernetes.io/hostname": full, "part": self.part, **product, **(labels or {})},
                },
                "spec": spec,
                "status": {
                    "capacity": have
                    | ({"nvidia.com/gpu": str(gpus if capacity is None else capacity)} if gpus else {}),
                    "allocatable": have | ({"nvidia.com/gpu": str(count)} if gpus else {}),
                    "conditions": [{"type": "Ready", "status": ready}],
                },
            }
        )
        return full

    def pod(
        self,
        name: str,
        gpus: int,
        on: str = "",
        *,
        cpu: float = 2,
        owner: str = "ReplicaSet",
        age_s: float = 86_400.0,
        meta: Object | None = None,
        status: Object | None = None,
        selector: dict[str, str] | None = None,
        types: str = "",
        gang: str = "",
        labels: dict[str, str] | None = None,
        command: list[str] | None = None,
        priority: int = 0,
    ) -> str:
        full = f"{self.part}-{name}"
        amounts = {"cpu": f"{int(cpu * 1000)}m", "memory": "8Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        owners = [{"apiVersion": "v1", "kind": owner, "name": f"{full}-abc", "uid": "1", "controller": True}]
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": full,
                    "namespace": self.part,
                    "uid": full,
                    "creationTimestamp": instant(age_s),
                    "labels": {
                        "app": name,
                        **({"tonnage.dev/gang": f"{self.part}-{gang}"} if gang else {}),
                        **(labels or {}),
                    },
                    "annotations": {"tonnage.dev/gpu-types": types} if types else {},
                    **({"ownerReferences": owners} if owner else {}),
                    **(meta or {}),
                },
                "spec": {
                    "nodeSelector": {"part": self.part} if selector is None else selector,
                    "priority": priority,
                    "containers": [
                        {
                            "name": "c",
                            "resources": {"requests": amounts, "limits": dict(amounts)},
                            **({"command": command} if command else {}),
                        }
                    ],
                    **({"nodeName": on} if on else {}),
                },
                "status": {"phase": "Running" if on else "Pending", **(status or {})},
            }
        )
        return f"{self.part}/{full}"

    def gang(self, name: str, members: int) -> None:
        self.objects.append(
            {
                "apiVersion": "tonnage.dev/v1alpha1",
                "kind": "Gang",
                "metadata": {"name": f"{self.part}-{name}", "namespace": self.part, "uid": f"{self.part}-{name}"},
                "spec": {"minMembers": members},
            }
        )

    def full(self, name: str = "full", kind: str = "a100", gpus: int = 8, owner: str = "Job") -> str:
        """A node of which every device works."""
        node = self.node(name, kind, gpus)
        self.pod(f"{name}-all", gpus, node, owner=owner)
        return node


def idle(p: Planted) -> None:
    p.full()
    count = p.chance.randint(1, 3)
    for n in range(count):
        p.node(f"idle{n}")
    p.waste("idle", count * 28.0)


def scattered(p: Planted) -> None:
    """Three nodes hold what two can."""
    for n in range(3):
        node = p.node(f"n{n}", "h100")
        p.pod(f"w{n}a", 4, node)
        if n:
            p.pod(f"w{n}b", 2, node)
    p.waste("fragmentation", 56.0)


def scattered_widely(p: Planted) -> None:
    """Pods of powers of two fill nodes of eight without a gap, so the least number of nodes is their sum over eight.

    Jobs stay where they are, and so do their nodes.
    """
    kind, count, total, fixed = p.chance.choice(list(PRICES)), p.chance.randint(3, 7), 0, 0
    for n in range(count):
        node, free = p.node(f"n{n}", kind), p.chance.randint(2, 7)
        has_job = p.chance.random() < 0.25
        fixed += has_job
        for number, size in enumerate(p.chance.choices([1, 1, 2, 4], k=5)):
            if size <= free:
                free -= size
                total += size
                p.pod(f"w{n}-{number}", size, node, owner="Job" if has_job and not number else "ReplicaSet")
    spare = count - max(-(-total // 8), fixed)
    if spare:
        p.waste("fragmentation", spare * 8 * PRICES[kind])


def dear_mixed(p: Planted) -> None:
    """Some pods on H100 may use A100, of which as many nodes are idle as they need."""
    count = p.chance.randint(1, 3)
    for n in range(count):
        p.node(f"cheap{n}", "a100")
        node = p.node(f"dear{n}", "h100")
        sizes = p.chance.choice([[8], [4, 4], [2, 2, 4], [1] * 8])
        for number, size in enumerate(sizes):
            p.pod(f"web{n}-{number}", size, node, types=p.chance.choice(["", "a100,h100"]))
    p.waste("types", count * 56.0)


def crowded_and_unblocked(p: Planted) -> None:
    """A pod of a whole node waits; loose pods on each node have room together beside the others."""
    for n in range(3):
        p.pod(f"loose{n}", p.chance.choice([1, 2]), p.node(f"n{n}", "h100"))
    p.pod("stays", 2, f"{p.part}-n0", owner="Job")
    p.pod("waits", 8, owner="Job")
    p.pod("waits-too", 8, owner="Job")
    p.waste("unblock", 112.0)


def dear(p: Planted) -> None:
    """A service of any type on H100, where an A100 node with as much memory is idle."""
    p.full("used", "a100")
    p.node("cheap", "a100")
    p.pod("web", 8, p.node("dear", "h100"))
    p.waste("types", 56.0)


def dear_by_name(p: Planted) -> None:
    """It names both types, of which the cheaper is idle."""
    p.node("cheap", "l4", 8)
    p.pod("web", 4, p.node("dear", "h100"), types="h100,l4")
    p.waste("types", 56.0)


def has_place(p: Planted) -> None:
    p.pod("runs", 4, p.node("half"), owner="Job")
    p.pod("waits", 4, owner="Job")
    p.waste("waiting", 14.0)


def gang_has_place(p: Planted) -> None:
    p.gang("g", 2)
    for n in range(2):
        p.pod(f"runs{n}", 4, p.node(f"half{n}"), owner="Job")
        p.pod(f"waits{n}", 4, owner="Job", gang="g")
    p.waste("waiting", 28.0)


def gang_unblocked(p: Planted) -> None:
    """A gang of two whole nodes waits, since a loose pod stands on one of two nodes; a third has room for it."""
    p.gang("g", 2)
    p.pod("loose", 2, p.node("n0"))
    p.node("n1")
    p.pod("stays", 6, p.node("n2"), owner="Job")
    for n in range(2):
        p.pod(f"waits{n}", 8, owner="Job", gang="g")
    p.waste("unblock", 56.0)


def cordoned_and_waited_for(p: Planted) -> None:
    p.full()
    p.node("shut", unschedulable=True)
    p.pod("waits", 8, owner="Job")
    p.waste("opened", 28.0)


def cordoned(p: Planted) -> None:
    p.full()
    p.node("shut", unschedulable=True)
    p.waste("closed", 28.0)


def not_ready(p: Planted) -> None:
    p.full()
    p.node("lost", ready="Unknown")
    p.waste("closed", 28.0)


def tainted(p: Planted) -> None:
    p.full()
    p.node("kept", taints=[{"key": "maintenance", "value": "march", "effect": "NoSchedule"}])
    p.waste("closed", 28.0)


def half_cordoned(p: Planted) -> None:
    p.pod("runs", 2, p.node("shut", unschedulable=True), owner="Job")
    p.waste("half-closed", 6 * 3.5)


def blocked(p: Planted) -> None:
    """An idle node that a pod without a controller keeps; a node without GPUs has room for it."""
    p.full()
    p.node("cpus", gpus=0)
    p.pod("bare", 0, p.node("idle"), owner="")
    p.waste("blocked", 28.0)


def idle_with_web(p: Planted) -> None:
    """An idle node whose Deployment's pod has room on a node without GPUs."""
    p.full()
    p.node("cpus", gpus=0)
    p.pod("web", 0, p.node("idle"))
    p.waste("idle", 28.0)


def starved(p: Planted) -> None:
    """Four idle devices whose CPU another pod holds, which is a Job's."""
    node = p.node("n", cpu=32)
    p.pod("runs", 4, node, cpu=8, owner="Job")
    p.pod("hog", 0, node, cpu=23.5, owner="Job")
    p.full("other")
    p.waste("stranded", 14.0)


def no_plugin(p: Planted) -> None:
    p.full()
    p.node("broken", offered=0)
    p.waste("unusable", 28.0)


def no_driver(p: Planted) -> None:
    p.full()
    node = p.node("bare", offered=0, labels={"nvidia.com/gpu.count": "8"})
    made = next(each for each in p.objects if each["metadata"]["name"] == node)
    for part in ("capacity", "allocatable"):
        made["status"][part].pop("nvidia.com/gpu")
    p.waste("unusable", 28.0)


def sick_devices(p: Planted) -> None:
    node = p.node("sick", offered=5)
    p.pod("runs", 5, node, owner="Job")
    p.waste("unusable", 3 * 3.5)


def held_in_vain(p: Planted) -> None:
    reason = p.chance.choice(
        ["ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError", "ErrImageNeverPull"]
    )
    status = {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": reason}}}]}
    p.pod("pulls", 8, p.node("n"), status=status)
    p.waste("held", 28.0)


def never_ends(p: Planted) -> None:
    p.pod("ends", 8, p.node("n"), meta={"deletionTimestamp": instant(7200.0)}, owner="Job")
    p.waste("held", 28.0)


def has_ended(p: Planted) -> None:
    ended = {"name": "c", "state": {"terminated": {"exitCode": 0, "finishedAt": instant(7200.0)}}}
    p.pod("ended", 8, p.node("n"), owner="Job", status={"containerStatuses": [ended]})
    p.waste("held", 28.0)


def half_a_gang(p: Planted) -> None:
    p.gang("g", 3)
    for n in range(2):
        p.pod(f"runs{n}", 8, p.node(f"n{n}"), owner="Job", gang="g")
    p.pod("waits", 8, owner="Job", gang="g")
    p.waste("held", 56.0)


def unused(p: Planted) -> None:
    p.used_share[p.pod("idles", 8, p.node("n"), owner="Job", age_s=3 * 86_400.0)] = 0.01
    p.waste("unused", 28.0)


def forgotten(p: Planted) -> None:
    which = p.chance.choice(["bare", "notebook", "shell"])
    node = p.node("n")
    if which == "bare":
        p.pod("bare", 8, node, owner="", age_s=21 * 86_400.0)
    elif which == "notebook":
        p.pod("nb", 8, node, owner="StatefulSet", age_s=21 * 86_400.0, labels={"notebook-name": "x"})
    else:
        p.pod("shell", 8, node, owner="Job", age_s=2 * 86_400.0, command=["sleep", "infinity"])
    p.waste("aged", 28.0)


PLANTS: tuple[Callable[[Planted], None], ...] = (
    idle,
    scattered,
    scattered_widely,
    dear_mixed,
    crowded_and_unblocked,
    dear,
    dear_by_name,
    has_place,
    gang_has_place,
    gang_unblocked,
    cordoned_and_waited_for,
    cordoned,
    not_ready,
    tainted,
    half_cordoned,
    blocked,
    idle_with_web,
    starved,
    no_plugin,
    no_driver,
    sick_devices,
    held_in_vain,
    never_ends,
    has_ended,
    half_a_gang,
    unused,
    forgotten,
)


def gang_runs(p: Planted) -> None:
    """Members of a gang on two half nodes, which would fit on one: they restart together, so none moves."""
    p.gang("g", 2)
    for n in range(2):
        p.pod(f"m{n}", 4, p.node(f"n{n}"), owner="ReplicaSet", gang="g")


def pinned(p: Planted) -> None:
    for n in range(2):
        node = p.node(f"n{n}")
        p.pod(f"p{n}", 2, node, selector={"kubernetes.io/hostname": node})


def jobs_apart(p: Planted) -> None:
    for n in range(2):
        p.pod(f"j{n}", 2, p.node(f"n{n}"), owner="Job")


def budget_forbids(p: Planted) -> None:
    for n in range(2):
        p.pod(f"w{n}", 2, p.node(f"n{n}"), labels={"app": "guarded"})
    p.objects.append(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": p.part, "uid": f"b-{p.part}", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "guarded"}}, "minAvailable": 2},
            "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
        }
    )


def too_little_memory(p: Planted) -> None:
    """Its type is not named: whether the model fits 24 GiB is unknown. The L4 node works."""
    p.pod("small", 6, p.node("l4", "l4"), owner="Job")
    p.pod("big", 2, p.node("h", "h100"))


def starts_now(p: Planted) -> None:
    status = {
        "phase": "Pending",
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}],
    }
    p.pod("new", 8, p.node("n"), age_s=120.0, status=status)


def asks_to_stay(p: Planted) -> None:
    for n in range(2):
        pod = p.pod(f"w{n}", 2, p.node(f"n{n}"))
        made = next(each for each in p.objects if f"{p.part}/{each['metadata']['name']}" == pod)
        made["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "true"


def fits_nowhere(p: Planted) -> None:
    p.full()
    p.pod("wide", 16, owner="Job")


def old_and_used(p: Planted) -> None:
    p.used_share[p.pod("old", 8, p.node("n"), owner="", age_s=60 * 86_400.0)] = 0.7


DECOYS: tuple[Callable[[Planted], None], ...] = (
    gang_runs,
    pinned,
    jobs_apart,
    budget_forbids,
    too_little_memory,
    starts_now,
    asks_to_stay,
    fits_nowhere,
    old_and_used,
)


def planted(seed: int) -> Planted:
    """A cluster of eight to twenty parts, which share no node: wastes, decoys, and full nodes."""
    chance = random.Random(seed)  # noqa: S311 - no secrets
    made = Planted(chance)
    chosen = [chance.choice(PLANTS) for _ in range(chance.randint(5, 12))]
    chosen += [chance.choice(DECOYS) for _ in range(chance.randint(3, 8))]
    chance.shuffle(chosen)
    for number, plant in enumerate(chosen):
        made.begin(f"{plant.__name__.replace('_', '-')}-{number}")
        plant(made)
    chance.shuffle(made.objects)
    for name, price in PRICES.items():
        made.objects.append(
            {
                "apiVersion": "tonnage.dev/v1alpha1",
                "kind": "GPUType",
                "metadata": {"name": name},
                "spec": {"nodeLabel": {"values": [name]}, "memory": MEMORY[name], "pricePerHour": {"onDemand": price}},
            }
        )
    return made


def advised(made: Planted) -> tuple[Snapshot, AdviceReport]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made.objects})
    manifests = read_manifests(["-"], StringIO(text))
    now = snapshot_from(manifests, is_dump=True).snapshot
    settings = Planning(policy="bestfit").on_files()
    return now, advise(
        now,
        decider(settings),
        packer_of(settings),
        held=holders(manifests.pods, now, NOW_S, made.used_share),
        replaced=replaced_in(manifests.pods),
        own={each.name for each in manifests.pods if each.object.belongs_to_its_node},
        unusable=tuple(unusable_devices(manifests.nodes, manifests.gpu_types)),
    )


def part_of(name: str, parts: set[str]) -> str:
    bare = name.removeprefix("Gang/").removeprefix("Pod/").rpartition("/")[2]
    return max((part for part in parts if bare.startswith(f"{part}-")), key=len, default="")


def found_in(report: AdviceReport, made: Planted) -> dict[tuple[str, str], float]:
    parts = {each["metadata"]["namespace"] for each in made.objects if "namespace" in each["metadata"]}
    parts |= {each["metadata"].get("labels", {}).get("part", "") for each in made.objects} - {""}
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for each in report.advice:
        for item in each.items:
            if item.dollars_per_hour:
                found[part_of(item.name, parts), each.topic] += item.dollars_per_hour
    return found


def wrong(now: Snapshot, advice: Advice, made: Planted) -> Iterator[str]:
    """What goes otherwise than an advice says, when a simulated cluster applies it alone."""
    world, usd = SimulatedWorld(now), now.device_prices()
    rules = Occupancy(now)
    actions = [action for change in advice.changes for action in (*change.moves, *change.starts)]
    starts = {action.pod for change in advice.changes for action in change.starts}
    # All leave before any arrives: a place may be that of another that moves.
    stops = [action for action in actions if action.pod not in starts]
    for action in stops:
        row = rules.row(action.pod)
        kept = advice.topic != "blocked" and not now.pods.may_be_stopped[row]
        if kept or now.pods.gang[row] >= 0:
            yield f"{action.pod} may not be stopped"
        rules.put(row, PENDING, 0)
    for action in actions:
        if why := rules.objection_to_bind(action.pod, action.node, action.devices):
            yield f"{action.pod} on {action.node}: {why.words}"
        rules.place(action.pod, action.node, action.devices)
    if advice.changes:
        for error in world.apply([*stops, *(a for a in actions if a.pod in starts)]):
            if error is not None:
                yield str(error)
    after = rules.now()
    if advice.effect == "saves" and advice.topic != "services":
        held = {int(node) for node in after.pods.node.tolist() if node != PENDING}
        saved = 0.0
        for item in advice.items:
            row = now.nodes.names.row(item.name)
            if row is None or row in held:
                yield f"{item.name} is not empty"
            else:
                saved += float(now.nodes.gpus[row] * usd[row])
        if abs(saved - advice.dollars_per_hour) > 0.05 * saved:
            yield f"{advice.topic} saves {saved} and says {advice.dollars_per_hour}"
    for number, gang in enumerate(now.gangs):
        mine = after.pods.node[after.pods.gang == number]
        running = int((mine != PENDING).sum())
        before = int((now.pods.node[now.pods.gang == number] != PENDING).sum())
        if running < before or (running > before and running < gang.min_members):
            yield f"gang {gang.name} runs with {running} of {gang.min_members}, before {before}"


@dataclass(frozen=True)
class Judged:
    truth_usd: float
    found_usd: float
    right_usd: float
    wrong: tuple[str, ...]
    missed: tuple[tuple[tuple[str, str], float, float], ...]


def judged(seed: int) -> Judged:
    made = planted(seed)
    now, report = advised(made)
    found = found_in(report, made)
    both = {key: (made.truth.get(key, 0.0), found.get(key, 0.0)) for key in {**made.truth, **found}}
    return Judged(
        sum(made.truth.values()),
        sum(found.values()),
        sum(min(pair) for pair in both.values()),
        tuple(said for each in report.advice for said in wrong(now, each, made)),
        tuple((key, *pair) for key, pair in sorted(both.items()) if abs(pair[0] - pair[1]) > 0.05 * max(pair)),
    )


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2])
    all_of = [judged(seed) for seed in range(first, first + count)]
    for seed, each in enumerate(all_of, start=first):
        for said in (*each.missed, *each.wrong):
            sys.stdout.write(f"{seed} {said}\n")
    truth, found, right = (
        sum(getattr(each, name) for each in all_of) for name in ("truth_usd", "found_usd", "right_usd")
    )
    kinds = Counter(topic for seed in range(first, first + count) for _, topic in planted(seed).truth)
    sys.stdout.write(
        f"precision {right / found:.3f}, recall {right / truth:.3f} of ${truth:,.0f}/h, "
        f"{sum(len(each.wrong) for each in all_of)} wrong, {len(kinds)} kinds: {dict(kinds)}\n"
    )
