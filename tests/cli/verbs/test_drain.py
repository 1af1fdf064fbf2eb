"""`drain`: nothing is done while a pod blocks it, a dry run changes nothing, and only pods that it saw are evicted."""

import asyncio
from typing import Any

import pytest

from cli.verbs.drain import drain_node
from controller.kube.request import Refusal
from controller.queries.drain import Consent, NodePod, cordon, evict_all
from tests.cli.verbs.fake_cluster import FakeConnection, Sent

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "resourceVersion": "1"}, "spec": {}, "status": {}}
OWNER = {"kind": "ReplicaSet", "controller": True, "apiVersion": "apps/v1", "name": "r", "uid": "u"}


def pod(name: str, *, owned: bool = True) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": [OWNER] if owned else []}
    return {"metadata": metadata, "spec": {"nodeName": "a", "containers": []}, "status": {"phase": "Running"}}


def connection(*pods: dict[str, Any]) -> FakeConnection:
    made = FakeConnection({"/api/v1/nodes/a": NODE}, {"/api/v1/pods": list(pods), "/api/v1/nodes": [NODE]})

    def stop(write: Sent) -> None:
        made.objects.pop(write.path.removesuffix("/eviction"), None)

    made.after = stop
    for each in pods:
        made.objects[f"/api/v1/namespaces/ns/pods/{each['metadata']['name']}"] = each
    return made


def drained(made: FakeConnection, dry_run: str = "none") -> bool:
    return asyncio.run(drain_node(made.cluster, "a", Consent(), "tonnage", dry_run, None, 0.0))


def evicted(made: FakeConnection) -> list[str]:
    return [each.path.split("/")[-2] for each in made.sent if each.path.endswith("/eviction")]


def test_a_node_is_cordoned_and_emptied() -> None:
    made = connection(pod("p"), pod("q"))

    assert drained(made)
    assert made.sent[0].path == "/api/v1/nodes/a"
    assert made.sent[0].body == {"spec": {"unschedulable": True}}
    assert sorted(evicted(made)) == ["p", "q"]


def test_nothing_is_done_while_a_pod_blocks_the_drain() -> None:
    made = connection(pod("p"), pod("q", owned=False))

    assert not drained(made)
    assert made.sent == []


def test_a_client_dry_run_of_a_drain_sends_nothing() -> None:
    made = connection(pod("p"))

    assert drained(made, "client")
    assert made.sent == []


def test_a_server_dry_run_of_a_drain_changes_nothing() -> None:
    made = connection(pod("p"))

    assert drained(made, "server")
    assert [each.query.get("dryRun") for each in made.sent] == ["All", "All"]


@pytest.mark.parametrize("grace_s", [None, 0])
def test_only_the_pod_that_was_seen_is_evicted_not_another_of_its_name(grace_s: int | None) -> None:
    made = connection(pod("p"))
    seen = NodePod("ns", "p", "uid-p", "leaves", "")

    assert asyncio.run(evict_all(made, [seen], lambda *_: None, grace_s=grace_s))  # type: ignore[arg-type]
    (write,) = made.sent
    assert write.body is not None
    options = {"preconditions": {"uid": "uid-p"}} | ({} if grace_s is None else {"gracePeriodSeconds": grace_s})
    assert write.body["deleteOptions"] == options


async def never(_: float) -> None:
    raise AssertionError("nothing is left to wait for")


def test_a_pod_that_was_replaced_meanwhile_is_gone_and_its_successor_stays() -> None:
    made = connection(pod("p"))
    made.objects["/api/v1/namespaces/ns/pods/p"]["metadata"]["uid"] = "uid-of-the-next"
    made.answer = lambda _: Refusal(409, "Conflict", "the UID in the precondition does not match")

    seen = NodePod("ns", "p", "uid-p", "leaves", "")

    assert asyncio.run(evict_all(made, [seen], lambda *_: None, pause=never))  # type: ignore[arg-type]
    assert len(made.sent) == 1


def test_a_node_that_is_cordoned_is_not_cordoned_again() -> None:
    path, closed = "/api/v1/nodes/n", {"spec": {"unschedulable": True}}
    open_node, closed_node = FakeConnection({path: {"spec": {}}}), FakeConnection({path: closed})

    assert asyncio.run(cordon(open_node, "n", dry_run=False))
    assert not asyncio.run(cordon(closed_node, "n", dry_run=False))
    assert [sent.body for sent in (*open_node.sent, *closed_node.sent)] == [closed]
