"""Kubernetes as a world: writes in flight count, terminating pods hold devices, objects of others stay untouched."""

import json
from dataclasses import replace

from cluster.actions import Bind, Evict, HoldSeats, Move, Scale
from cluster.errors import ActionError
from cluster.held_seats import text_of
from cluster.plans import Phase, Plan, Reason, ServicePlan, Step
from cluster.snapshot import PENDING, HeldSeat, HeldSeats, Snapshot
from cluster.workloads import CACHE, InstanceType, ModelService, PromptCache
from controller.deciders.edits import without_pods_to_come
from controller.kube.cluster_view import SeenDeployment, SeenPod, SeenService
from controller.kube.sender import Stamp, Write
from controller.kube_world.deployments import Instance, content_of, deployment_name
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.reservations import Reservations
from controller.placers import NoClaims, NodePool
from placement.mix.planner import plan_of
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types, profile, service
from tests.clock import HandClock
from tests.unit.controller.kube.fake_cluster_view import A100, FakeClusterView, fake_view, kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter, refused

TEMPLATE = {"spec": {"containers": [{"name": "server", "image": "i"}]}}


class OneClaim(NoClaims):
    def allocate(self, pod: SeenPod, action: Bind, stamp: Stamp) -> list[Write]:
        return [Write("PATCH", "/claim")]


def small() -> FakeClusterView:
    return fake_view(
        world(
            [node("a", gpus=2)],
            [pod("ns/runs", gpus=1, on="a", devices=(0,)), pod("ns/waits", gpus=1), pod("ns/also", gpus=1)],
            services=[service("ns/chat")],
            profiles=[profile("A100", [[1.0]])],
        )
    )


def seat(seen: Snapshot, name: str) -> tuple[int, int] | None:
    row = seen.pods.names.row(name)
    return None if row is None else (int(seen.pods.node[row]), int(seen.pods.devices[row]))


def test_a_bind_counts_before_the_watch_has_shown_it() -> None:
    cluster = kubernetes(small(), FakeWriter())

    cluster.apply([Bind("ns/waits", "a", (1,))])

    assert seat(cluster.observe(), "ns/waits") == (0, 0b10)


def test_a_bind_that_the_watch_never_shows_is_forgotten_after_30_s() -> None:
    clock = HandClock()
    cluster = kubernetes(small(), FakeWriter(), clock)
    cluster.apply([Bind("ns/waits", "a", (1,))])

    clock.now_s = 30.0

    assert seat(cluster.observe(), "ns/waits") == (PENDING, 0)


def test_a_bind_that_was_refused_holds_nothing() -> None:
    cluster = kubernetes(small(), FakeWriter(lambda _: refused(409)))

    (answer,) = cluster.apply([Bind("ns/waits", "a", (1,))])

    assert isinstance(answer, ActionError)
    assert seat(cluster.observe(), "ns/waits") == (PENDING, 0)


def test_a_bind_of_which_no_answer_came_holds_its_devices() -> None:
    cluster = kubernetes(small(), FakeWriter(lambda _: refused(0)))

    (answer,) = cluster.apply([Bind("ns/waits", "a", (1,))])

    assert isinstance(answer, ActionError)
    assert seat(cluster.observe(), "ns/waits") == (0, 0b10)
    (second,) = cluster.apply([Bind("ns/also", "a", (1,))])
    assert isinstance(second, ActionError), "it may have happened: nobody else gets the device"


def test_two_binds_of_one_batch_do_not_get_one_device() -> None:
    writer = FakeWriter()

    answers = kubernetes(small(), writer).apply([Bind("ns/waits", "a", (1,)), Bind("ns/also", "a", (1,))])

    assert [answer is None for answer in answers] == [True, False]
    assert len(writer.sent) == 1


def test_what_is_being_stopped_holds_its_devices_until_it_is_gone() -> None:
    cluster = kubernetes(small(), FakeWriter())

    answers = cluster.apply([Evict("ns/runs", "a")])
    (bound,) = cluster.apply([Bind("ns/waits", "a", (0,))])

    assert answers == [None]
    assert isinstance(bound, ActionError)


def test_an_eviction_means_the_very_pod_that_was_seen() -> None:
    writer = FakeWriter()

    kubernetes(small(), writer).apply([Evict("ns/runs", "a")])

    (write,) = writer.sent
    assert write.path == "/api/v1/namespaces/ns/pods/runs/eviction"
    assert write.body is not None
    assert write.body["deleteOptions"] == {"preconditions": {"uid": "uid-ns/runs"}}


def test_an_eviction_carries_the_epoch_by_which_the_api_server_knows_an_earlier_leaders() -> None:
    writer = FakeWriter()

    kubernetes(small(), writer).apply([Evict("ns/runs", "a")])

    (write,) = writer.sent
    assert write.body is not None
    assert write.body["metadata"]["annotations"] == {"tonnage.dev/epoch": "3"}


def test_a_pod_that_ends_already_is_not_evicted_again() -> None:
    sightings, writer = small(), FakeWriter()
    sightings.pods["ns/runs"] = replace(sightings.pods["ns/runs"], is_ending=True)

    assert kubernetes(sightings, writer).apply([Evict("ns/runs", "a")]) == [None]
    assert writer.sent == []


def with_owner(sightings: FakeClusterView, name: str) -> FakeClusterView:
    seen = replace(sightings.pods[name], is_recreated=True, controller="ReplicaSet/ns/app-1")
    sightings.pods[name] = seen
    return sightings


def held(*seats: HeldSeat) -> HoldSeats:
    return HoldSeats(HeldSeats("ns/waits", 0.0, 60.0, seats))


def test_a_pod_that_nobody_creates_anew_is_not_moved() -> None:
    writer = FakeWriter()

    (answer,) = kubernetes(small(), writer).apply([Move("ns/runs", "a", "a", (1,))])

    assert isinstance(answer, ActionError)
    assert writer.sent == []


def test_a_move_is_an_eviction_with_its_preconditions() -> None:
    writer = FakeWriter()

    assert kubernetes(with_owner(small(), "ns/runs"), writer).apply([Move("ns/runs", "a", "a", (1,))]) == [None]
    assert [write.path for write in writer.sent] == ["/api/v1/namespaces/ns/pods/runs/eviction"]


def test_held_seats_stand_on_the_pod_that_they_are_for_with_the_owner_of_what_moves() -> None:
    writer = FakeWriter()
    own, moved = HeldSeat("ns/waits", "a", (0,), 1000, 5, 6), HeldSeat("ns/runs", "a", (1,), 1000, 5, 6, is_moved=True)

    assert kubernetes(with_owner(small(), "ns/runs"), writer).apply([held(own, moved)]) == [None]

    (write,) = writer.sent
    assert (write.method, write.path) == ("PATCH", "/api/v1/namespaces/ns/pods/waits")
    assert write.body is not None
    metadata = write.body["metadata"]
    assert metadata["uid"] == "uid-ns/waits"
    record = json.loads(metadata["annotations"]["tonnage.dev/held-seats"])
    assert record["until_s"] == 60.0
    assert [(each["pod"], each.get("owner", "")) for each in record["seats"]] == [
        ("ns/waits", ""),
        ("ns/runs", "ReplicaSet/ns/app-1"),
    ]


def test_stops_and_held_seats_count_before_the_watch_has_shown_them() -> None:
    own, moved = HeldSeat("ns/waits", "a", (0,), 1000, 5, 6), HeldSeat("ns/runs", "a", (1,), 1000, 5, 6, is_moved=True)
    sightings, clock, record = with_owner(small(), "ns/runs"), HandClock(), held(own, moved)
    cluster = kubernetes(sightings, FakeWriter(), clock)

    cluster.apply([record, Move("ns/runs", "a", "a", (1,))])

    now = cluster.observe()
    assert now.pods.ending is not None
    assert [now.pods.names[row] for row in now.pods.ending.nonzero()[0].tolist()] == ["ns/runs"]
    known = replace(moved, owner="ReplicaSet/ns/app-1")
    assert [each.seats for each in now.held] == [(replace(own, taker="ns/waits"), known)]
    shown = text_of(replace(record.held, seats=(own, known)))
    sightings.pods["ns/waits"] = replace(sightings.pods["ns/waits"], held_seats=shown)
    sightings.pods["ns/runs"] = replace(sightings.pods["ns/runs"], is_ending=True)
    assert cluster.observe().held == (), "what the watch shows from now on is what counts"
    assert cluster.observe().pods.ending is None


def test_seats_whose_write_was_refused_are_not_held() -> None:
    cluster = kubernetes(small(), FakeWriter(lambda _: refused(409)))

    cluster.apply([held(HeldSeat("ns/waits", "a", (0,), 1000, 5, 6))])

    assert cluster.observe().held == ()


def test_no_seat_is_held_for_the_replacement_of_a_pod_without_owner() -> None:
    writer = FakeWriter()

    (answer,) = kubernetes(small(), writer).apply([held(HeldSeat("ns/runs", "a", (1,), 1000, 5, 6, is_moved=True))])

    assert isinstance(answer, ActionError)
    assert writer.sent == []


def test_what_another_leader_held_is_believed_only_where_nobody_else_can_write_it() -> None:
    own = HeldSeats("ns/waits", 0.0, 60.0, (HeldSeat("ns/waits", "a", (0,), 1000, 5, 6, taker="ns/waits"),))
    sightings, clock = small(), HandClock()
    sightings = replace(sightings, now=replace(sightings.now, held=(own,)))

    def seen(*, is_guarded: bool) -> tuple[HeldSeats, ...]:
        reservations = Reservations(clock, inherited_for_s=10.0)
        reservations.lead(is_guarded=is_guarded)
        clock.now_s += 10.0
        view = PlanningView(sightings, [NodePool("bind", {})], clock=clock, reservations=reservations)
        return view.snapshot().held

    assert seen(is_guarded=True) == (own,)
    assert seen(is_guarded=False) == ()


def test_pending_pods_of_other_schedulers_are_not_planned_on() -> None:
    sightings = small()
    sightings.pods["ns/waits"] = SeenPod("ns/waits", "u", "1")

    assert "ns/waits" not in kubernetes(sightings, FakeWriter()).observe().pods.names


def test_a_pod_that_was_bound_since_the_snapshot_holds_its_devices() -> None:
    sightings = small()
    sightings.pods["ns/waits"] = replace(sightings.pods["ns/waits"], node="a", devices=(1,))

    assert seat(kubernetes(sightings, FakeWriter()).observe(), "ns/waits") == (0, 0b10)


def test_a_pod_without_its_gate_counts_on_the_node_that_was_chosen_for_it() -> None:
    sightings = small()
    sightings.pods["ns/waits"] = SeenPod("ns/waits", "u", "2", chosen_node="a", devices=(1,))

    assert seat(kubernetes(sightings, FakeWriter()).observe(), "ns/waits") == (0, 0b10)


def with_template(sightings: FakeClusterView) -> FakeClusterView:
    sightings.services["ns/chat"] = SeenService("ns/chat", "uid-chat", 1, TEMPLATE)
    return sightings


def chat_on_a100(sightings: FakeClusterView) -> Instance:
    seen = sightings.services["ns/chat"]
    return Instance(sightings.now.services[0], seen, InstanceType("A100"), A100, "bind")


def test_a_scale_is_one_deployment_for_each_gpu_type_owned_by_its_service() -> None:
    writer = FakeWriter()

    assert kubernetes(with_template(small()), writer).apply([Scale("ns/chat", of_types({"A100": 2}))]) == [None]

    (write,) = writer.sent
    assert write.body is not None
    assert write.path == "/apis/apps/v1/namespaces/ns/deployments/chat-a100"
    assert write.body["spec"]["replicas"] == 2
    assert write.body["metadata"]["ownerReferences"][0]["uid"] == "uid-chat"
    made = write.body["spec"]["template"]["spec"]
    assert made["schedulerName"] == "tonnage"
    assert made["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_a_service_without_a_template_is_only_planned() -> None:
    (answer,) = kubernetes(small(), FakeWriter()).apply([Scale("ns/chat", of_types({"A100": 2}))])

    assert isinstance(answer, ActionError)
    assert "spec.template" in str(answer)


def test_a_service_that_was_deleted_since_is_not_scaled() -> None:
    writer, sightings = FakeWriter(), small()
    sightings.services.clear()

    (answer,) = kubernetes(sightings, writer).apply([Scale("ns/chat", of_types({"A100": 2}))])

    assert isinstance(answer, ActionError)
    assert "no longer exists" in str(answer)
    assert writer.sent == []


def test_a_service_whose_deployment_is_refused_is_tried_ever_less_often_until_it_is_changed() -> None:
    """Each plan decides the same again, with one write for each such service."""
    clock, writer, sightings = HandClock(), FakeWriter(lambda _: refused(422)), with_template(small())
    cluster, scale = kubernetes(sightings, writer, clock), Scale("ns/chat", of_types({"A100": 2}))

    def tried() -> int:
        """Writes of one more plan."""
        before = len(writer.sent)
        (answer,) = cluster.apply([scale])
        assert "422" in str(answer) or "refused" in str(answer).lower()
        return len(writer.sent) - before

    assert (tried(), tried()) == (1, 0)
    clock.now_s = 1.0
    assert (tried(), tried()) == (1, 0)
    clock.now_s = 2.9  # the second pause is two seconds
    assert tried() == 0
    sightings.services["ns/chat"] = SeenService("ns/chat", "uid-chat", 2, TEMPLATE)
    assert (tried(), tried()) == (1, 0)
    clock.now_s = 3600.0
    assert sum(tried() for clock.now_s in range(3600, 7200)) < 70


def test_a_service_whose_deployment_met_a_conflict_is_tried_again_at_once() -> None:
    writer = FakeWriter(lambda _: refused(409))
    cluster, scale = kubernetes(with_template(small()), writer), Scale("ns/chat", of_types({"A100": 2}))

    for _ in range(2):
        cluster.apply([scale])

    assert len(writer.sent) == 2


def test_a_service_asks_for_what_its_deployments_ask_for() -> None:
    sightings = with_template(small())
    content = content_of(chat_on_a100(sightings))
    sightings.deployed = (SeenDeployment("ns/chat", InstanceType("A100"), 3, content),)

    assert kubernetes(sightings, FakeWriter()).observe().services[0].replicas == of_types({"A100": 3})


def test_instances_that_are_not_ready_are_awaited_for_ten_minutes_after_each_change() -> None:
    sightings, clock = with_template(small()), HandClock()
    content = content_of(chat_on_a100(sightings))
    cluster = kubernetes(sightings, FakeWriter(), clock=clock)

    def awaited_after(for_s: float, replicas: int, *, no_pods: str = "", unready: int = 1) -> bool | None:
        chat = SeenDeployment("ns/chat", InstanceType("A100"), replicas, content, no_pods, unready)
        sightings.deployed, sightings.now = (chat,), replace(sightings.now, at_s=sightings.now.at_s + for_s)
        clock.now_s += for_s
        return cluster.observe().services[0].is_loading

    assert [awaited_after(100.0, 2) for _ in range(8)] == [True] * 6 + [False] * 2
    assert awaited_after(100.0, 3)
    assert not awaited_after(1.0, 3, unready=0)
    assert not awaited_after(1.0, 4, no_pods="exceeded quota")


def test_a_replica_that_comes_and_goes_makes_nobody_wait_longer_for_another_that_never_is_ready() -> None:
    sightings, clock = with_template(small()), HandClock()
    content = content_of(chat_on_a100(sightings))
    cluster = kubernetes(sightings, FakeWriter(), clock=clock)
    never = SeenDeployment("ns/chat", InstanceType("A100", 2), 1, content, "", unready=1)
    loading = []
    for turn in range(12):
        flaps = SeenDeployment("ns/chat", InstanceType("A100"), 3, content, "", unready=turn % 2)
        sightings.deployed, sightings.now = (never, flaps), replace(sightings.now, at_s=sightings.now.at_s + 100.0)
        clock.now_s += 100.0
        loading.append(cluster.observe().services[0].is_loading)

    assert loading[0]
    assert not all(loading[6:])


def test_instances_that_do_not_serve_stop_while_others_load() -> None:
    """As where their nodes are gone: nobody waits for them, and they wait for nobody."""
    sightings = with_template(small())
    content = content_of(chat_on_a100(sightings))
    sightings.deployed = (SeenDeployment("ns/chat", InstanceType("A100"), 3, content, "", unready=2),)
    seen = kubernetes(sightings, FakeWriter()).observe()
    assert seen.services[0].is_loading

    plan = plan_of(seen, {"ns/chat": ServicePlan("ns/chat", {InstanceType("A100", 2): 1}, 1.0, None, None)}, None)

    (scale,) = [step.action for phase in plan.phases for step in phase.steps]
    assert isinstance(scale, Scale)
    assert scale.instances == {InstanceType("A100"): 1, InstanceType("A100", 2): 1}


def test_what_an_earlier_specification_runs_and_the_mix_does_not_want_goes() -> None:
    sightings = with_template(small())
    sightings.deployed = (SeenDeployment("ns/chat", InstanceType("A100"), 3, "of an older template"),)
    seen = kubernetes(sightings, FakeWriter()).observe()
    assert seen.services[0].outdated == (InstanceType("A100"),)

    wide = {InstanceType("A100", 2): 1}
    seen = replace(seen, services=(replace(seen.services[0], replicas=wide),))
    plan = plan_of(seen, {"ns/chat": ServicePlan("ns/chat", wide, 1.0, None, None)}, None)

    (scale,) = [step.action for phase in plan.phases for step in phase.steps]
    assert isinstance(scale, Scale)
    assert scale.instances[InstanceType("A100")] == 0


def test_a_deployment_that_is_not_as_its_service_says_asks_for_nothing_and_is_written_anew() -> None:
    sightings = with_template(small())
    sightings.deployed = (SeenDeployment("ns/chat", InstanceType("A100"), 3, "of an older template"),)

    assert kubernetes(sightings, FakeWriter()).observe().services[0].replicas is None


def test_long_names_stay_apart() -> None:
    one, two = (deployment_name("x" * 60 + end, InstanceType("a100")) for end in "12")

    assert one != two
    assert len(one) == len(two) == 52


def test_pods_that_do_not_exist_yet_are_not_bound_and_nothing_is_stopped_for_them() -> None:
    why = Reason("Test", "")
    plan = Plan(
        (
            Phase("make room", (Step(Evict("ns/runs", "a"), why),)),
            Phase("start pods", (Step(Bind("ns/chat-a100-0", "a", (0,)), why), Step(Bind("ns/waits", "a", (1,)), why))),
        )
    )

    kept = without_pods_to_come(small().now, plan)

    assert kept.actions == (Bind("ns/waits", "a", (1,)),)
    assert [(u.workload, u.reason.code) for u in kept.unplaced] == [("Pod/ns/chat-a100-0", "AwaitsPod")]


def test_what_is_stopped_for_a_pod_that_does_not_exist_yet_goes_on_and_other_stops_do_not_wait() -> None:
    why = Reason("Test", "")
    to_come = Phase(
        "for chat", (Step(Evict("ns/a", "a"), why), Step(Bind("ns/chat-a100-0", "a", (0,)), why)), whole=True
    )
    other = Phase("for waits", (Step(Evict("ns/runs", "a"), why), Step(Bind("ns/waits", "a", (1,)), why)), whole=True)

    kept = without_pods_to_come(small().now, Plan((to_come, other)))

    assert kept.phases == (other,)


def test_a_bind_of_which_a_claim_was_written_holds_its_devices_though_the_binding_was_refused() -> None:
    sightings = small()
    sightings.pods["ns/waits"] = replace(sightings.pods["ns/waits"], has_claims=True)
    writer = FakeWriter(lambda write: b"{}" if write.path == "/claim" else refused(409))
    cluster = kubernetes(sightings, writer, placer="dra", claims=OneClaim())

    (answer,) = cluster.apply([Bind("ns/waits", "a", (1,))])

    assert isinstance(answer, ActionError)
    assert [write.path for write in writer.sent] == ["/claim", "/api/v1/namespaces/ns/pods/waits/binding"]
    assert seat(cluster.observe(), "ns/waits") == (0, 0b10)


def test_instances_of_a_dra_pool_get_their_devices_by_a_claim_of_a_template_of_their_service() -> None:
    writer = FakeWriter()
    cluster = kubernetes(
        with_template(small()), writer, placer="dra", device_classes={"nvidia.com/gpu": "gpu.nvidia.com"}
    )

    assert cluster.apply([Scale("ns/chat", of_types({"A100": 2}))]) == [None]

    template, deployment = writer.sent
    assert template.body is not None
    assert deployment.body is not None
    (request,) = template.body["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
    assert template.body["metadata"]["ownerReferences"][0]["uid"] == "uid-chat"
    made = deployment.body["spec"]["template"]["spec"]
    assert made["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": template.body["metadata"]["name"]}]
    assert made["containers"][0]["resources"]["claims"] == [{"name": "gpus"}]
    assert made["containers"][0]["resources"]["limits"] == {}
    assert made["schedulerName"] == "tonnage"


def test_a_service_on_a_dra_pool_whose_driver_nobody_names_is_not_scaled() -> None:
    (answer,) = kubernetes(with_template(small()), FakeWriter(), placer="dra").apply(
        [Scale("ns/chat", of_types({"A100": 2}))]
    )

    assert "dra_drivers" in str(answer)


def test_a_deployment_asks_for_the_devices_of_its_instance_type() -> None:
    writer = FakeWriter()
    sightings = with_template(small())

    kubernetes(sightings, writer).apply([Scale("ns/chat", {InstanceType("A100"): 1, InstanceType("A100", 4): 2})])

    one, four = writer.sent
    assert one.body is not None
    assert four.body is not None
    assert one.path.endswith("/chat-a100")
    assert four.path.endswith("/chat-a100x4")
    assert one.body["spec"]["selector"]["matchLabels"] != four.body["spec"]["selector"]["matchLabels"]
    assert four.body["spec"]["selector"]["matchLabels"]["tonnage.dev/gpus-per-instance"] == "4"
    assert four.body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_a_deployment_of_a_width_without_a_profile_counts_until_it_is_scaled_to_none() -> None:
    sightings = with_template(small())
    sightings.deployed = (SeenDeployment("ns/chat", InstanceType("A100", 4), 3, "of an older version"),)

    assert kubernetes(sightings, FakeWriter()).observe().services[0].replicas == {InstanceType("A100", 4): 3}


def test_a_service_that_may_use_spot_nodes_has_a_deployment_for_each_capacity_type() -> None:
    writer, sightings = FakeWriter(), with_template(small())
    sightings.now = replace(sightings.now, services=tuple(replace(s, spot=True) for s in sightings.now.services))

    kubernetes(sightings, writer).apply(
        [Scale("ns/chat", {InstanceType("A100"): 1, InstanceType("A100", spot=True): 2})]
    )

    def terms(number: int) -> list[list[tuple[str, str]]]:
        body = writer.sent[number].body
        assert body is not None
        affinity = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        found = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return [[(each["key"], each["operator"]) for each in term["matchExpressions"]] for term in found]

    assert [write.path.rpartition("/")[2] for write in writer.sent] == ["chat-a100", "chat-a100-spot"]
    assert len(terms(0)) == 1
    assert ("karpenter.sh/capacity-type", "NotIn") in terms(0)[0]
    assert len(terms(1)) == 5
    assert any(("cloud.google.com/gke-spot", "In") in term for term in terms(1))


BROKEN = {"spec": {"containers": [None]}}
"""Template that the API server would not accept: it stands for one that the code does not foresee."""


def test_a_template_that_cannot_be_used_stops_no_other_object() -> None:
    sightings, writer = small(), FakeWriter()
    sightings.services["ns/chat"] = SeenService("ns/chat", "uid-chat", 1, BROKEN)
    sightings.deployed = (SeenDeployment("ns/chat", InstanceType("A100"), 3, "content"),)
    cluster = kubernetes(sightings, writer)

    assert "ns/waits" in cluster.observe().pods.names
    scaled, bound = cluster.apply([Scale("ns/chat", of_types({"A100": 2})), Bind("ns/waits", "a", (1,))])

    assert "AttributeError" in str(scaled)
    assert bound is None
    assert len(writer.sent) == 1


def test_a_cache_that_an_earlier_specification_runs_is_written_again() -> None:
    """No profile has its width, as no model runs there; a service that has no cache any more scales it to none."""
    sightings = with_template(small())
    sightings.services["ns/chat-cache"] = SeenService("ns/chat-cache", "uid-chat", 1, TEMPLATE)
    sightings.deployed = (SeenDeployment("ns/chat-cache", InstanceType("A100", 0), 3, "of an older template"),)
    (chat,) = sightings.now.services

    def seen(cache: PromptCache | None) -> ModelService:
        pool = replace(chat, name="ns/chat-cache", phase=CACHE, part_of="ns/chat", cache=cache)
        sightings.now = replace(sightings.now, services=(chat, pool))
        return kubernetes(sightings, FakeWriter()).observe().services[1]

    assert seen(PromptCache(4, 2**36, 0.256, ((10.0, 0.5),))).outdated == (InstanceType("A100", 0),)
    assert seen(None).replicas == {InstanceType("A100", 0): 3}
