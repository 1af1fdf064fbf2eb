"""Observer of a live cluster: the snapshot, and objects that are left out rather than planned on."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cluster.errors import ObservationError
from cluster.nodes import eligible_nodes
from cluster.snapshot import PENDING, device_numbers
from cluster.workloads import PodShape
from controller.api.gang import KIND as GANG_KIND
from controller.api.kind import Kind
from controller.api.kinds import KINDS, OWN_KINDS
from controller.api.rule import Flaw
from controller.api.structs import Pod
from controller.kube.request import Refusal
from controller.kube_world.observer import Observer, empty_caches
from controller.kube_world.reservations import Reservations
from controller.objects.own_objects import by_object
from placement.engine.packer import Packer
from placement.policies.published import BestFit
from tests.builders.crd_cases import FULL
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gang, gpu_type, having, node, pod, profile, service
from tests.builders.watch_events import Object, as_stored, bookmark, listed
from tests.clock import HandClock

GANG = {"tonnage.dev/gang": "train"}


def names(live: LiveCluster) -> list[str]:
    return list(live.observer.observe().pods.names)


def seats(live: LiveCluster) -> dict[str, str | None]:
    """Pod → its node."""
    seen = live.observer.observe()
    rows = zip(seen.pods.names, seen.pods.node.tolist(), strict=True)
    return {name: None if row == PENDING else seen.nodes.names[row] for name, row in rows}


def devices(live: LiveCluster, name: str) -> tuple[int, ...]:
    pods = live.observer.observe().pods
    return device_numbers(int(pods.devices[list(pods.names).index(name)]))


def test_a_half_synced_picture_is_never_planned_on() -> None:
    caches = empty_caches(groups=())
    for cache in caches.each:
        if cache is not caches.own[GANG_KIND]:
            cache.take_page(listed(), 1000.0, is_first=True)
    caches.own[GANG_KIND].fail(Refusal(404, "NotFound", "the server has no such resource"))

    with pytest.raises(ObservationError, match=r"not seen yet: gangs \(the server has no such resource\)"):
        Observer(caches, lambda: 1000.0).observe()


def test_a_part_of_which_nothing_was_heard_for_too_long_is_not_planned_on() -> None:
    live = LiveCluster([node()])
    live.clock.now_s += 180.0
    live.observer.observe()

    live.clock.now_s += 1.0
    for cache in live.caches.each:
        if cache is not live.caches.pods:
            cache.take_line(bookmark(5), live.clock.now_s)

    with pytest.raises(ObservationError, match="nothing was heard of pods for 181 s"):
        live.observer.observe()


def test_each_part_tells_when_it_was_last_seen() -> None:
    live = LiveCluster([node()])
    live.clock.now_s = 1030.0
    live.caches.nodes.take_line(bookmark(5), 1020.0)

    seen = live.observer.observe()

    assert (seen.at_s, seen.age_s("pods"), seen.age_s("nodes")) == (1030.0, 30.0, 10.0)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 86400.0, -86400.0])
def test_what_was_heard_is_as_old_as_before_when_somebody_sets_the_clock(step_s: float) -> None:
    ages = HandClock(50.0)
    live = LiveCluster([node()])
    observer = Observer(replace(live.caches, ages=ages), live.clock)
    for cache in live.caches.each:
        cache.seen_at_s = 40.0
    live.clock.now_s += step_s

    seen = observer.observe()

    assert (seen.at_s, seen.age_s("pods")) == (1000.0 + step_s, 10.0)
    ages.now_s += 180.0
    with pytest.raises(ObservationError, match="for 190 s"):
        observer.observe()


def test_what_did_not_change_is_the_same_table() -> None:
    live = LiveCluster([gpu_type(), node(), pod(on="n1")])
    before = live.observer.observe()

    live.put(pod(on="n1"))  # a new version of it, in which nothing changed that planning reads
    after = live.observer.observe()

    assert after.pods is before.pods
    assert after.nodes is before.nodes


def test_where_anybody_may_write_annotations_a_running_pod_holds_what_it_held_first() -> None:
    reservations = Reservations(is_guarded=False)
    live = LiveCluster([node(gpus=8)], reservations=reservations)
    share = {"tonnage.dev/gpu-milli": "1000", "tonnage.dev/devices": "0"}
    forged = {"tonnage.dev/gpu-milli": "1", "tonnage.dev/devices": "7"}

    def held() -> tuple[tuple[int, ...], int]:
        pods = live.observer.observe().pods
        return devices(live, "default/p"), pods.shapes[int(pods.shape[0])].gpu_milli

    live.put(pod("p", on="n1", annotations=share))
    assert held() == ((0,), 1000)
    live.put(pod("p", on="n1", annotations=forged))
    assert held() == ((0,), 1000)
    live.remove(pod("p", on="n1", annotations=forged))
    assert names(live) == []
    live.put(pod("p", on="n1", annotations=forged))
    assert held() == ((7,), 1), "another pod of that name"
    reservations.is_guarded = True
    live.put(pod("p", on="n1", annotations=share))
    assert held() == ((0,), 1000), "nobody but Tonnage can have changed it"


def test_pods_come_are_bound_end_and_go() -> None:
    live = LiveCluster([node()])
    live.put(pod("a"), pod("b"), pod("c", on="n1"))
    assert seats(live) == {"default/a": None, "default/b": None, "default/c": "n1"}

    live.put(pod("a", on="n1"), pod("c", on="n1", phase="Succeeded"))
    live.remove(pod("b"))

    assert seats(live) == {"default/a": "n1"}


def test_a_pod_that_is_being_deleted_holds_what_it_holds_until_it_is_gone() -> None:
    ending = having(pod("runs", on="n1"), "metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
    never = having(pod("waits"), "metadata.deletionTimestamp", "2026-01-01T00:00:00Z")

    assert seats(LiveCluster([node(), ending, never])) == {"default/runs": "n1"}


def test_a_service_that_is_being_deleted_is_planned_no_more_and_its_running_pods_hold_what_they_hold() -> None:
    """A finalizer of its owner's may keep it for ever, with the stock that its mix had."""
    ending = having(service(), "metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
    mine = {"tonnage.dev/service": "chat"}
    live = LiveCluster([gpu_type(), node(), profile(), service()])
    assert [each.name for each in live.observer.observe().services] == ["default/chat"]

    live.put(ending, pod("runs", 1, on="n1", labels=mine), pod("waits", 1, labels=mine))

    assert live.observer.observe().services == ()
    assert seats(live) == {"default/runs": "n1"}


def test_a_pod_on_a_node_that_is_gone_holds_nothing_and_is_not_pending_either() -> None:
    live = LiveCluster([node("n1"), node("n2"), pod("a", on="n1"), pod("b", on="n2")])

    live.remove(node("n1"))

    assert seats(live) == {"default/b": "n2"}
    assert [(d.read.name, d.kind, d.name) for d in live.observer.see().dangling] == [("default/a", "Node", "n1")]


def test_a_node_that_comes_back_has_its_pods_again_on_the_devices_that_they_had() -> None:
    live = LiveCluster([gpu_type(), node("n1"), pod("a", 1, on="n1", annotations={"tonnage.dev/devices": "5"})])
    assert devices(live, "default/a") == (5,)

    live.remove(node("n1"))
    live.observer.observe()
    live.put(node("n1"))

    assert devices(live, "default/a") == (5,)


def test_devices_are_assumed_anew_when_the_neighbours_change() -> None:
    """Shares choose the fullest device that has room, so `b` sits beside `a` until `a` is gone and is first itself."""
    share = {"tonnage.dev/gpu-milli": "600"}
    live = LiveCluster(
        [gpu_type(), node(gpus=2), pod("a", on="n1", annotations=share), pod("b", on="n1", annotations=share)]
    )
    assert (devices(live, "default/a"), devices(live, "default/b")) == ((0,), (1,))

    live.remove(pod("a"))

    assert devices(live, "default/b") == (0,)


def test_a_pending_pod_waits_until_its_gang_is_there() -> None:
    live = LiveCluster([node(), pod("member", labels=GANG), pod("runs", on="n1", labels=GANG)])
    assert names(live) == ["default/runs"]

    live.put(gang())

    seen = live.observer.observe()
    assert list(seen.pods.names) == ["default/member", "default/runs"]
    assert seen.pods.gang.tolist() == [0, 0]


def test_a_pending_pod_that_contradicts_itself_waits_and_is_told() -> None:
    wrong = pod("wrong", annotations={"tonnage.dev/gpu-milli": "lots"})

    seen = LiveCluster([gpu_type(), node(), wrong, pod("right")]).observer.see()

    assert list(seen.snapshot.pods.names) == ["default/right"]
    assert list(by_object(seen.mistakes)) == ["Pod/default/wrong"]


def test_a_running_pod_that_contradicts_itself_holds_what_it_says_nevertheless() -> None:
    wrong = pod("wrong", on="n1", annotations={"tonnage.dev/movable": "perhaps"})

    seen = LiveCluster([node(), wrong]).observer.see()

    assert list(seen.snapshot.pods.names) == ["default/wrong"]
    assert seen.snapshot.free().cpu_milli.tolist() == [95_000]  # 96 cores less the one that it asks for


def test_only_a_pod_whose_replacement_waits_for_tonnage_is_moved() -> None:
    """Another scheduler would place the replacement where it sees fit, and the seat that is kept for it stay empty."""
    by_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "s", "controller": True}
    running: dict[str, Any] = {"on": "n1", "phase": "Running", "annotations": {"tonnage.dev/movable": "true"}}
    pods = [pod("ours", 1, schedulerName="tonnage", **running), pod("strange", 1, **running)]
    for each in pods:
        each["metadata"]["ownerReferences"] = [by_set]

    seen = LiveCluster([gpu_type(), node(), *pods]).observer.observe().pods

    assert dict(zip(seen.names, seen.movable.tolist(), strict=True)) == {"default/ours": True, "default/strange": False}


def test_nothing_new_starts_on_a_node_that_contradicts_itself() -> None:
    both = node()
    both["status"]["allocatable"]["amd.com/gpu"] = "8"

    seen = LiveCluster([gpu_type(), gpu_type("mi300x", resourceName="amd.com/gpu"), both]).observer.see()

    assert seen.snapshot.nodes.schedulable.tolist() == [False]
    assert list(by_object(seen.mistakes)) == ["Node/n1"]


def test_a_pending_pod_of_another_scheduler_is_not_ours_but_what_it_holds_later_is_counted() -> None:
    def is_ours(pod: Pod) -> bool:
        return pod.spec.scheduler_name == "tonnage"

    live = LiveCluster([node(), pod("theirs"), pod("ours", schedulerName="tonnage")], is_ours=is_ours)
    assert names(live) == ["default/ours"]

    live.put(pod("theirs", on="n1"))

    assert seats(live) == {"default/ours": None, "default/theirs": "n1"}


def test_a_pod_becomes_ours_when_its_gate_is_the_last_one_left() -> None:
    def is_ours(pod: Pod) -> bool:
        return [gate.name for gate in pod.spec.scheduling_gates] == ["tonnage.dev/placement"]

    gates = [{"name": "tonnage.dev/placement"}, {"name": "quota"}]
    live = LiveCluster([node(), pod("p", schedulingGates=gates)], is_ours=is_ours)
    assert names(live) == []

    live.put(pod("p", schedulingGates=gates[:1]))

    assert names(live) == ["default/p"]


def test_a_new_gpu_type_gives_nodes_and_pods_their_type() -> None:
    live = LiveCluster([node(), pod("p", 1, nodeSelector={"nvidia.com/gpu.product": "A100"})])
    assert live.observer.observe().nodes.gpu_type.tolist() == [-1]

    live.put(gpu_type())

    seen = live.observer.observe()
    assert seen.nodes.gpu_type.tolist() == [0]
    assert [shape.gpu_types for shape in seen.pods.shapes] == [("a100",)]


def test_a_service_that_contradicts_the_fleet_is_left_out_and_its_instances_stay() -> None:
    instance = pod("i", 1, on="n1", labels={"tonnage.dev/service": "chat"})
    live = LiveCluster([gpu_type(), profile(), node(), service(gpuTypes=["h100"]), instance])

    seen = live.observer.see()

    assert seen.snapshot.services == ()
    assert seen.snapshot.pods.owner == ("default/chat",)
    assert list(by_object(seen.mistakes)) == ["ModelService/default/chat"]

    live.put(gpu_type("h100"))

    assert [s.name for s in live.observer.observe().services] == ["default/chat"]


def test_an_object_of_ours_that_cannot_be_read_is_told_and_taken_once_it_can() -> None:
    live = LiveCluster([gpu_type(), profile(), node()])
    live.put(having(service(), "spec.slo.tpot", 40))
    seen = live.observer.see()
    assert seen.snapshot.services == ()
    assert [str(m) for m in by_object(seen.mistakes)["ModelService/default/chat"]] == [
        "ModelService/default/chat, spec.slo.tpot: should be a duration with its unit, like 40ms or 30s, not 40"
    ]

    live.put(service())

    seen = live.observer.see()
    assert ([s.name for s in seen.snapshot.services], seen.mistakes) == (["default/chat"], ())


def test_a_field_that_a_later_release_adds_to_our_kinds_is_no_mistake() -> None:
    later: Object = having(service(), "spec.novelty", {"a": 1})

    seen = LiveCluster([gpu_type(), profile(), node(), having(later, "spec.slo.ttft", "1s")]).observer.see()

    assert ([s.name for s in seen.snapshot.services], seen.mistakes) == (["default/chat"], ())


def test_after_a_bug_the_picture_is_made_anew_from_all_that_is_known() -> None:
    class Flaky:
        fails = True

        def __call__(self, pod: Pod) -> bool:
            if self.fails:
                raise RuntimeError("a bug")
            return True

    flaky = Flaky()
    live = LiveCluster([node(), pod("a"), pod("b")], is_ours=flaky)
    with pytest.raises(RuntimeError):
        live.observer.observe()

    flaky.fails = False

    assert names(live) == ["default/a", "default/b"]


def test_notes_tell_what_a_plan_does_not_weigh() -> None:
    wish = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    live = LiveCluster([node(gpus=0), pod("a", topologySpreadConstraints=wish), pod("b")])

    notes = live.observer.notes(live.observer.observe())

    assert [(note.about, note.reason.code) for note in notes] == [("Pod/default/a", "PreferencesNotHeeded")]


def test_a_namespace_is_known_by_its_labels_as_they_are_now() -> None:
    of_team = {"labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "x"}}}
    term = {"topologyKey": "kubernetes.io/hostname", **of_team}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    there, host = pod("there", 0, on="n1"), node(gpus=0)
    there["metadata"]["namespace"] = "other"
    host["metadata"]["labels"] = {"kubernetes.io/hostname": "n1"}
    live = LiveCluster([host, there, pod("p", 0, affinity=apart)])

    def allowed() -> bool:
        snapshot = live.observer.observe()
        shape = snapshot.pods.shapes[snapshot.pods.shape[snapshot.pods.names.row("default/p")]]
        return bool(Packer(snapshot, BestFit()).feasible(shape)[0])

    assert allowed()
    live.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "x"}}})
    assert not allowed()


def test_stored_objects_are_what_an_api_server_keeps() -> None:
    """The builder of these tests: numbers became text, namespaces are filled in."""
    stored = as_stored(pod("p", gpus=2))

    assert stored["metadata"]["namespace"] == "default"
    assert stored["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


@pytest.mark.parametrize("kind", [kind for kind in OWN_KINDS if kind.is_planned_from], ids=lambda kind: kind.name)
def test_an_object_of_any_kind_that_raises_is_refused_alone(kind: Kind) -> None:
    """A bug of ours: none is known, and each would otherwise stop the placing of everybody's pods."""

    def broken(_: object) -> Iterator[Flaw]:
        raise TypeError("of a tenant")

    kinds = [replace(each, checks=(broken,)) if each is kind else each for each in KINDS]
    live = LiveCluster([gpu_type(), node(), pod("canary")], kinds=kinds)
    live.put(FULL[kind.name])

    seen = live.observer.see()

    assert list(seen.snapshot.pods.names) == ["default/canary"]
    about = [about for about in by_object(seen.mistakes) if about.startswith(f"{kind.name}/")]
    words = " ".join(str(each) for each in seen.mistakes)
    assert (len(about) > 0, "cannot be read: TypeError" in words, "of a tenant" in words) == (True, True, False)


IN_ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


@pytest.mark.parametrize(
    ("terms", "may_run_on"),
    [([{}], []), ([{}, IN_ZONE], ["n1"]), ([IN_ZONE], ["n1"])],
    ids=["alone", "beside another", "none"],
)
def test_an_empty_term_of_an_affinity_matches_no_node(terms: list[Object], may_run_on: list[str]) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    waiting = having(pod("p"), "spec.affinity", {"nodeAffinity": required})
    live = LiveCluster([gpu_type(), having(node("n1"), "metadata.labels", {"zone": "a"}), node("n2"), waiting])

    seen = live.observer.observe()

    met = eligible_nodes(seen.pods.shapes[0], seen.nodes, seen.gpu_type_names)
    assert [seen.nodes.names[row] for row in met.nonzero()[0].tolist()] == may_run_on


def test_shapes_and_gangs_of_pods_that_are_gone_are_forgotten() -> None:
    stays = pod("stays", gpus=2, on="n1", labels=GANG)
    live = LiveCluster([gpu_type(), node("n0"), node("n1"), gang("train"), stays])

    def job(turn: int, number: int) -> Object:
        one = pod(f"job{number}", labels={"tonnage.dev/gang": f"job-{turn}-{number}"})
        return having(one, "spec.nodeSelector", {"job": f"{turn}-{number}"})

    def remembered() -> int:
        return sum(isinstance(each, PodShape) for each in gc.get_objects())

    before = remembered()
    for turn in range(40):
        live.put(*(job(turn, number) for number in range(100)))
        seen = live.observer.observe()

    # 4,000 shapes came and 100 of them are still there: at most 1,000 beside twice those.
    assert remembered() - before <= 1000 + 2 * 101 + 100
    assert (list(seen.pods.names), seen.pods.gang.tolist()) == (["default/stays"], [0])
    assert (seats(live), devices(live, "default/stays")) == ({"default/stays": "n1"}, (0, 1))
    live.put(gang("job-39-7"))
    assert seats(live) == {"default/job7": None, "default/stays": "n1"}
