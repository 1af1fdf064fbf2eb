"""`tonnage get` by names: against a fake connection."""

import asyncio
from typing import Any

import pytest

from cli.inputs.resources import Manifest, named_by
from cli.printing.columns import Look
from cli.verbs.get import GetOptions, print_named, print_objects
from tests.cli.verbs.fake_cluster import FakeConnection


def got(connection: FakeConnection, *, ignore_not_found: bool) -> bool:
    options = GetOptions({}, "name", Look(), False, ignore_not_found=ignore_not_found)
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
    options = GetOptions({}, "name", Look(), False)

    async def work() -> bool:
        arguments = await named_by(connection.cluster, [manifest("web", None), manifest("db", "other")])
        return await print_named(connection.cluster, arguments, options)

    assert asyncio.run(work())
    assert capsys.readouterr().out.splitlines() == ["pod/web", "pod/db"]
