"""`tonnage wait`, `cordon`, `uncordon` and `get` by names: against a fake connection."""

import asyncio
from typing import Any

import pytest

from cli.inputs.resources import Manifest, named_by
from cli.printing.columns import Look
from cli.printing.object_output import Output
from cli.verbs.drain import set_one
from cli.verbs.get import GetOptions, print_named, print_objects
from cli.verbs.wait import has_condition, wait_condition, wait_for_all
from cluster.errors import TonnageError
from tests.cli.verbs.fake_cluster import FakeConnection

POD = "/api/v1/namespaces/ns/pods/web"


def pod(status: str, generation: int = 1, observed: int = 1) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "observedGeneration": observed}
    return {
        "metadata": {"name": "web", "generation": generation},
        "status": {"phase": "Running", "conditions": [condition]},
    }


@pytest.mark.parametrize(
    ("text", "obj", "met"),
    [
        ("condition=Ready", pod("True"), True),
        ("condition=ready=false", pod("False"), True),
        ("condition=Ready", pod("Unknown"), False),
        ("delete", None, True),
        ("delete", pod("True"), False),
        ("create", pod("False"), True),
        ("jsonpath={.status.phase}=Running", pod("True"), True),
        ("jsonpath={.status.phase}=Failed", pod("True"), False),
        ("jsonpath={.status.phase}", pod("True"), True),
        ("jsonpath={.status.nothing}", pod("True"), False),
    ],
)
def test_a_condition_is_read_as_kubectl_reads_it(text: str, obj: dict[str, Any] | None, met: bool) -> None:
    assert wait_condition(text).is_met(obj) is met


def test_a_condition_of_an_earlier_spec_does_not_count() -> None:
    assert not has_condition(pod("True", generation=2, observed=1), "Ready", "True")
    assert has_condition(pod("True", generation=2, observed=2), "Ready", "True")


def waited(connection: FakeConnection, condition: str) -> bool:
    return asyncio.run(wait_for_all(connection.cluster, ("pod/web",), wait_condition(condition), 0.0))


def test_an_object_that_meets_the_condition_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    assert waited(FakeConnection({POD: pod("True")}), "condition=Ready")
    assert capsys.readouterr().out == "pod/web condition met\n"


def test_a_wait_that_ends_without_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert not waited(FakeConnection({POD: pod("False")}), "condition=Ready")
    assert "timed out waiting for condition=Ready on pod/web" in capsys.readouterr().err


def cordoned(connection: FakeConnection, dry_run: str = "none", *, closed: bool) -> bool:
    return asyncio.run(set_one(connection.cluster, "n", dry_run, closed=closed))


def test_a_node_is_closed_and_opened_and_nothing_is_written_twice(capsys: pytest.CaptureFixture[str]) -> None:
    open_node = FakeConnection({"/api/v1/nodes/n": {"spec": {}}})
    closed_node = FakeConnection({"/api/v1/nodes/n": {"spec": {"unschedulable": True}}})

    assert cordoned(open_node, closed=True)
    assert cordoned(closed_node, closed=True)
    assert cordoned(closed_node, closed=False)

    assert [sent.body for sent in open_node.sent] == [{"spec": {"unschedulable": True}}]
    assert [sent.body for sent in closed_node.sent] == [{"spec": {"unschedulable": None}}]
    assert capsys.readouterr().out.splitlines() == ["node/n cordoned", "node/n already cordoned", "node/n uncordoned"]


def test_a_dry_run_on_the_client_writes_nothing() -> None:
    connection = FakeConnection({"/api/v1/nodes/n": {"spec": {}}})

    assert cordoned(connection, "client", closed=True)
    assert connection.sent == []


def got(connection: FakeConnection, *, ignore_not_found: bool) -> bool:
    options = GetOptions({}, Output("name"), Look(), False, ignore_not_found=ignore_not_found)
    return asyncio.run(print_objects(connection.cluster, ("pods", "p"), options))


def test_a_missing_object_is_no_error_where_that_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert not got(FakeConnection(), ignore_not_found=False)
    assert "NotFound" in capsys.readouterr().err
    assert got(FakeConnection(), ignore_not_found=True)
    assert capsys.readouterr().err == ""


def test_objects_of_manifests_are_read_in_their_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    def manifest(name: str, namespace: str | None) -> Manifest:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        return Manifest({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, "file")

    def stored(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}

    connection = FakeConnection(
        {"/api/v1/namespaces/ns/pods/web": stored("web"), "/api/v1/namespaces/other/pods/db": stored("db")}
    )
    options = GetOptions({}, Output("name"), Look(), False)

    async def work() -> bool:
        arguments = await named_by(connection.cluster, [manifest("web", None), manifest("db", "other")])
        return await print_named(connection.cluster, arguments, options)

    assert asyncio.run(work())
    assert capsys.readouterr().out.splitlines() == ["pod/web", "pod/db"]


def test_an_object_that_does_not_exist_is_not_waited_for() -> None:
    wanted = wait_condition("condition=Ready")

    with pytest.raises(TonnageError, match="--for=create"):
        asyncio.run(wait_for_all(FakeConnection().cluster, ("pod/p",), wanted, 0.0))
