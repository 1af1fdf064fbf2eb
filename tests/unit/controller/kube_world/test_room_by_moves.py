"""Room by moves over many cycles: one decision is carried out as it was made, whatever the watch has not shown yet.

The operator's whole cycle, on a fake API server whose watch lags behind its own writes; a ReplicaSet makes a new pod as
soon as one of its own is evicted.
"""

from collections import Counter, deque
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from controller.api.notation import rfc3339
from controller.brain.inline import InlineBrain, decisions_from, limits_from
from controller.cycle import run_cycle
from controller.kube.cache import Cache
from controller.kube.sender import Write
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView
from controller.settings import OperatorSettings
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import node, pod
from tests.builders.watch_events import bookmark
from tests.unit.controller.kube.fake_cluster_view import kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter, refused

GPUS, BEGIN_S, GRACE_S = 8, 1000.0, 2.0
OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "small", "uid": "rs", "controller": True}]


class Fleet:
    """Nodes with scattered pods of a ReplicaSet, and wide pods that take all that is free but `spare` GPUs."""

    def __init__(self, nodes: int, wide: int, seed: int, lag_s: float, spare: int = 0) -> None:
        """lag_s: longest time after which the watch shows a change."""
        self.chance, self.lag_s = Random(seed), lag_s  # noqa: S311 - a test's
        self.now_s, self.evicted, self.made = BEGIN_S, 0, 0
        self.pods: dict[str, dict[str, Any]] = {}
        self.gone_at_s: dict[str, float] = {}
        self._events: deque[tuple[float, bool, dict[str, Any]]] = deque()
        all_seats = [(n, device) for n in range(nodes) for device in range(GPUS)]
        seats = self.chance.sample(all_seats, (nodes - wide) * GPUS - spare)
        for number, device in seats:
            self._create_small(BEGIN_S - 600, f"n{number}", device)
        load = Counter(number for number, _ in seats)
        self.fewest = sum(sorted(load[number] for number in range(nodes))[:wide])
        for number in range(wide):
            self.create(f"wide-{number}", GPUS)
        self._events.clear()
        self.live = LiveCluster([*(node(f"n{number}", GPUS) for number in range(nodes)), *self.pods.values()])
        self.lead()

    def lead(self) -> None:
        """Another leader, which knows what the watch shows, and has seen all of it."""
        settings = OperatorSettings()
        view = CachedView(self.live.observer, Cache(DEPLOYMENTS))
        self.world = kubernetes(view, FakeWriter(self._answer), self.live.clock)
        self.brain, self.limits = InlineBrain(decisions_from(settings), clock=lambda: 0.0), limits_from(settings)
        self._show(self.now_s)

    def create(self, name: str, gpus: int, created_s: float | None = None, **meta: Any) -> dict[str, Any]:
        made = pod(name, gpus, schedulerName="tonnage")
        at_s = self.now_s if created_s is None else created_s
        made["metadata"] |= {"annotations": {}, "creationTimestamp": rfc3339(at_s), **meta}
        self.pods[name] = made
        self._changed(name)
        return made

    def cycle(self) -> None:
        self.now_s += 1.0
        self.live.clock.now_s = self.now_s
        for name in [name for name, at_s in self.gone_at_s.items() if at_s <= self.now_s]:
            self._changed(name, gone=True)
            del self.pods[name], self.gone_at_s[name]
        self._show(self.now_s - self.chance.uniform(0.0, self.lag_s))
        run_cycle(self.world, self.brain, self.limits, 2.0)

    def waits(self) -> list[str]:
        return [name for name, each in self.pods.items() if not each["spec"].get("nodeName")]

    def devices_used_twice(self) -> list[tuple[str, str]]:
        bound = (each for each in self.pods.values() if each["spec"].get("nodeName"))
        held = (
            (each["spec"]["nodeName"], device)
            for each in bound
            for device in each["metadata"]["annotations"]["tonnage.dev/devices"].split(",")
        )
        return [seat for seat, count in Counter(held).items() if count > 1]

    def _create_small(self, created_s: float, on: str = "", device: int = 0) -> None:
        self.made += 1
        name = f"small-{self.chance.randrange(36**5):08x}-{self.made}"
        made = self.create(name, 1, created_s, ownerReferences=OWNER, annotations={"tonnage.dev/movable": "true"})
        if on:
            self._bind(made, on, {"tonnage.dev/devices": str(device)})

    def _bind(self, made: dict[str, Any], on: str, annotations: dict[str, str]) -> None:
        made["spec"]["nodeName"], made["status"] = on, {"phase": "Running", "startTime": rfc3339(self.now_s)}
        made["metadata"]["annotations"] |= annotations

    def _changed(self, name: str, *, gone: bool = False) -> None:
        self._events.append((self.now_s, gone, deepcopy(self.pods[name])))

    def _show(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            _, gone, shown = self._events.popleft()
            (self.live.remove if gone else self.live.put)(shown)
        for cache in self.live.caches.each:
            cache.take_line(bookmark(1_000_000), self.now_s)

    def _answer(self, write: Write) -> bytes | Exception:
        name = write.path.split("/")[6]
        found = self.pods.get(name)
        if found is None:
            return refused(404)
        if write.query.get("dryRun") or write.body is None:
            return b"{}"
        if write.path.endswith("/eviction"):
            if name not in self.gone_at_s:
                self.gone_at_s[name] = self.now_s + GRACE_S + self.chance.uniform(0.0, 1.5)
                found["metadata"]["deletionTimestamp"] = rfc3339(self.now_s + GRACE_S)
                self.evicted += 1
                self._changed(name)
                self._create_small(self.now_s)
        elif write.path.endswith("/binding"):
            if found["spec"].get("nodeName"):
                return refused(409)
            self._bind(found, write.body["target"]["name"], write.body["metadata"]["annotations"])
            self._changed(name)
        else:
            found["metadata"]["annotations"] |= write.body["metadata"]["annotations"]
            self._changed(name)
        return b"{}"


@pytest.mark.parametrize("lag_s", [0.0, 1.5, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_decision_of_many_cycles_moves_the_fewest_and_is_done_though_the_watch_lags(seed: int, lag_s: float) -> None:
    """A plan stops eleven pods at most, so that the decision takes several; a second choice would find no room."""
    fleet = Fleet(24, 7, seed, lag_s)

    for _ in range(40):
        fleet.cycle()

    assert (fleet.waits(), fleet.devices_used_twice()) == ([], [])
    assert fleet.evicted == fleet.fewest


@pytest.mark.parametrize("seed", range(2))
def test_another_leader_goes_on_with_the_decision_and_strangers_take_none_of_its_seats(seed: int) -> None:
    fleet = Fleet(24, 6, seed, lag_s=2.5, spare=GPUS)
    before = fleet.fewest

    for cycle in range(40):
        fleet.cycle()
        if cycle == 1:
            for number in range(GPUS):
                fleet.create(f"stranger-{number}", 1)
        if cycle in (1, 2, 4):
            fleet.lead()

    assert (fleet.waits(), fleet.devices_used_twice()) == ([], [])
    assert fleet.evicted == before
