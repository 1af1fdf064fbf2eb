"""Replicas of targets on Kubernetes: one conditional write, and no second one before it is read back."""

from dataclasses import replace

import pytest

from cluster.actions import SetReplicas
from cluster.autoscaling import Replicas, ScaleTarget
from cluster.errors import ActionError
from cluster.snapshot import Snapshot
from controller.kube.request import JSON_PATCH
from controller.kube_world.planning_view import with_resized
from controller.kube_world.world import resize
from tests.builders.fleet import node, world
from tests.builders.scalers import NOW_S, scaler
from tests.unit.controller.kube.fake_cluster_view import fake_view, kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter, refused

WEB = ScaleTarget("apps/v1", "Deployment", "ns/web", "deployments")


def fleet(wanted: int = 4, read_at_s: float = NOW_S) -> Snapshot:
    known = scaler(target=WEB, replicas=Replicas(wanted, wanted, observed_at_s=read_at_s))
    return replace(world([node("a")], at_s=NOW_S), scalers=(known,))


def wanted(seen: Snapshot) -> int:
    replicas = seen.scalers[0].replicas
    assert replicas is not None
    return replicas.wanted


def test_replicas_are_written_only_if_the_target_still_asks_for_those_decided_on() -> None:
    write = resize(SetReplicas("ns/chat", WEB, 6, 4), 7)

    assert (write.method, write.path) == ("PATCH", "/apis/apps/v1/namespaces/ns/deployments/web/scale")
    assert write.content_type == JSON_PATCH
    assert write.body == [
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "add", "path": "/spec/replicas", "value": 6},
    ]
    assert write.query["fieldManager"] == "tonnage-epoch-7"


def test_a_scale_that_asks_for_none_has_no_field_of_that_name() -> None:
    body = resize(SetReplicas("ns/chat", WEB, 6, 0), 7).body

    assert isinstance(body, list)
    assert body[0] == {"op": "test", "path": "/spec", "value": {}}


def test_a_target_that_discovery_does_not_know_is_not_written() -> None:
    with pytest.raises(ActionError, match="not known yet"):
        resize(SetReplicas("ns/chat", ScaleTarget("a.b/v1", "Web", "ns/web"), 6, 4), 7)


def test_what_was_written_counts_until_it_is_read_back() -> None:
    writer, seen = FakeWriter(), fake_view(fleet())
    kube = kubernetes(seen, writer)
    kube.observe()

    assert kube.apply([SetReplicas("ns/chat", WEB, 6, 4)]) == [None]
    assert wanted(kube.observe()) == 6  # the scale was read before the write
    assert kube.observe().scalers[0].changes == ((NOW_S, 2),)

    seen.now = fleet(5, read_at_s=NOW_S + 15.0)
    assert wanted(kube.observe()) == 5  # read since: another writer changed it


def test_what_was_written_for_a_policy_that_is_gone_is_forgotten() -> None:
    seen = fake_view(fleet())
    kube = kubernetes(seen, FakeWriter())
    kube.observe()
    kube.apply([SetReplicas("ns/chat", WEB, 6, 4)])
    seen.now = replace(fleet(), scalers=())
    kube.observe()
    seen.now = fleet()  # a policy of the same name, whose target was set to 4 meanwhile

    assert wanted(kube.observe()) == 4


@pytest.mark.parametrize(("status", "counts"), [(0, 6), (422, 4)])
def test_a_write_without_an_answer_counts_and_a_refused_one_does_not(status: int, counts: int) -> None:
    kube = kubernetes(fake_view(fleet()), FakeWriter(lambda _: refused(status)))
    kube.observe()

    (answer,) = kube.apply([SetReplicas("ns/chat", WEB, 6, 4)])

    assert isinstance(answer, ActionError)
    assert wanted(kube.observe()) == counts


def test_an_action_on_replicas_of_another_number_is_refused_before_it_is_sent() -> None:
    writer = FakeWriter()

    (answer,) = kubernetes(fake_view(fleet()), writer).apply([SetReplicas("ns/chat", WEB, 6, 3)])

    assert isinstance(answer, ActionError)
    assert writer.sent == []


def test_a_change_that_its_policys_status_has_counts_once() -> None:
    seen = fleet()
    told = replace(seen, scalers=(replace(seen.scalers[0], changes=((NOW_S, 2),)),))

    assert with_resized(told, {"ns/chat": (NOW_S + 0.4, 6)}).scalers[0].changes == ((NOW_S, 2),)
