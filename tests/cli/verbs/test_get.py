"""`tonnage get` by names: against a fake connection."""

import asyncio

import pytest

from cli.printing.columns import Look
from cli.verbs.get import GetOptions, print_objects
from tests.cli.verbs.fake_cluster import FakeConnection


def test_a_missing_object_is_told_and_the_others_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    stored = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    connection = FakeConnection({"/api/v1/namespaces/ns/pods/web": stored})
    options = GetOptions({}, "name", Look(), False)

    assert not asyncio.run(print_objects(connection.cluster, ("pods", "p", "web"), options))

    shown = capsys.readouterr()
    assert shown.out == "pod/web\n"
    assert "NotFound" in shown.err
