"""Input of the fast power loop: classes from pods, specs from objects; a status that it wrote is no change."""

from typing import Any

from cluster.plans import Reason
from controller.api.structs import Node, OwnObject
from controller.kube.cache import Cache
from controller.kube_world.observer import NODES
from controller.loops.power.control import POWER_DOMAINS, NodeWork, PowerWatcher, work_of
from controller.loops.power.loop import PowerView
from controller.report.events import EventSeries, ReportedDecision, event_name, event_write, series_write
from tests.builders.fleet import node, pod, world
from tests.builders.watch_events import Object, listed

GPU = "nvidia.com/gpu"


class Watched:
    def __init__(self) -> None:
        self.domains: Cache[OwnObject] = Cache(POWER_DOMAINS, lambda: None)
        self.nodes: Cache[Node] = Cache(NODES, lambda: None)
        self.watcher = PowerWatcher(self.domains, self.nodes, frozenset({GPU}))

    def store(self, domains: list[Object], nodes: list[Object]) -> "Watched":
        self.domains.take_page(listed(domains), 0.0, is_first=True)
        self.nodes.take_page(listed(nodes), 0.0, is_first=True)
        return self

    def see(self) -> PowerView:
        view = self.watcher.see()
        assert view is not None
        return view


def rack(generation: int = 1, status: dict[str, Any] | None = None, **spec: Any) -> Object:
    told = {"type": "rack", "nodes": {"key": "rack", "values": ["a"]}, **spec}
    return {"metadata": {"name": "rack", "generation": generation}, "spec": told, "status": status or {}}


def machine(name: str = "n1", **amounts: dict[str, str]) -> Object:
    labels = {"rack": "a", "unrelated": "x"}
    return {"metadata": {"name": name, "labels": labels}, "status": amounts or {"capacity": {GPU: "8"}}}


def test_nothing_is_seen_before_domains_and_nodes_were_listed() -> None:
    watched = Watched()
    watched.domains.take_page(listed([rack()]), 0.0, is_first=True)

    assert watched.watcher.see() is None


def test_labels_that_no_domain_asks_for_are_left_out() -> None:
    assert dict(Watched().store([rack()], [machine()]).see().nodes["n1"].labels) == {"rack": "a"}


def test_gpus_that_are_unhealthy_draw_all_the_same() -> None:
    sick = machine(capacity={GPU: "8"}, allocatable={GPU: "5"})

    assert Watched().store([rack()], [sick]).see().nodes["n1"].gpus == 8


def test_devices_of_resource_slices_count_as_planning_counts_them() -> None:
    watched = Watched().store([rack()], [machine(capacity={"cpu": "8"})])
    watched.watcher.work = NodeWork({"n1": 5}, {"n1": 4})

    assert (watched.see().nodes["n1"].gpus, watched.see().nodes["n1"].priority) == (4, 5)


def test_a_status_that_was_written_is_no_news() -> None:
    watched = Watched().store([rack()], [machine()])
    before = watched.see()
    watched.store([rack(status={"drawWatts": 7.0})], [machine()])

    assert watched.see() == before


def test_a_changed_spec_comes_with_its_generation() -> None:
    watched = Watched().store([rack()], [machine()])
    watched.see()
    watched.store([rack(2, budgetWatts=900.0)], [machine()])

    assert watched.see().generations == {"rack": 2}
    assert watched.see().domains["rack"].budget_watts == 900.0


def test_a_domain_that_cannot_be_read_is_left_out_and_named() -> None:
    view = Watched().store([rack(budgetWatts=-5.0)], [machine()]).see()

    assert view.domains == {}
    assert [each.place for each in view.unreadable] == ["PowerDomain/rack, spec.budgetWatts"]
    assert view.generations == {"rack": 1}


def test_the_most_important_pod_with_gpus_speaks_for_its_node() -> None:
    snapshot = world(
        [node("a", gpus=8), node("b", gpus=8), node("c", gpus=0)],
        [
            pod("low", gpus=1, priority=1, on="a"),
            pod("high", gpus=1, priority=9, on="a"),
            pod("cpu", gpus=0, priority=99, on="b"),
            pod("waits", gpus=1, priority=50),
        ],
    )

    assert work_of(snapshot) == NodeWork({"a": 9}, {"a": 8, "b": 8})


def test_events_of_what_has_no_namespace_are_in_default() -> None:
    series = EventSeries(ReportedDecision("PowerDomain", "row", "Keeping", Reason("BudgetKept", "fits")), "u", 1.0, 1.0)
    write = event_write(series, 3, "me")

    assert write.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert write.body["metadata"]["namespace"] == "default"
    assert (write.body["regarding"]["name"], "namespace" in write.body["regarding"]) == ("row", False)
    assert event_name(series).startswith("row.")
    assert series_write(series, 3).path.startswith("/apis/events.k8s.io/v1/namespaces/default/events/row.")
