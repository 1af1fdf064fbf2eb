"""`apply`: a client dry run sends nothing, conflicts are not forced unasked, and the exit status tells of refusals."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.inputs.resources import Manifest, manifests_in
from cli.main import tonnage
from cli.verbs.apply import apply_all
from controller.kube.request import Refusal
from tests.cli.verbs.fake_cluster import FakeConnection, Sent

PATH = "/api/v1/namespaces/ns/configmaps/c"
CONFLICT = Refusal(409, "Conflict", "Apply failed with 1 conflict")


def config(name: str = "c", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"k": "v"}}


@pytest.fixture
def manifests(tmp_path: Path) -> tuple[Manifest, ...]:
    (tmp_path / "m.yaml").write_text(yaml.safe_dump_all([config()]), encoding="utf-8")
    return manifests_in([str(tmp_path / "m.yaml")])


def applied(
    connection: FakeConnection, manifests: tuple[Manifest, ...], dry_run: str = "none", *, force: bool = False
) -> bool:
    return asyncio.run(apply_all(connection.cluster, manifests, None, dry_run, "name", force=force))


def test_a_client_dry_run_sends_nothing(manifests: tuple[Manifest, ...]) -> None:
    connection = FakeConnection()

    assert applied(connection, manifests, "client")
    assert connection.sent == []


def test_a_server_dry_run_stores_nothing(manifests: tuple[Manifest, ...]) -> None:
    connection = FakeConnection()

    assert applied(connection, manifests, "server")
    assert [each.query["dryRun"] for each in connection.sent] == ["All"]


@pytest.mark.parametrize("force", [False, True])
def test_fields_of_other_owners_are_taken_over_only_when_asked(manifests: tuple[Manifest, ...], *, force: bool) -> None:
    connection = FakeConnection()

    assert applied(connection, manifests, force=force)
    (write,) = connection.sent
    assert (write.method, write.path) == ("PATCH", PATH)
    assert write.query.get("force") == ("true" if force else None)
    assert "dryRun" not in write.query


def test_a_refused_manifest_fails_the_verb_and_the_others_are_applied(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(yaml.safe_dump_all([config("q"), config("c")]), encoding="utf-8")

    def answer(write: Sent) -> Refusal | None:
        return CONFLICT if write.path.endswith("/q") else None

    connection = FakeConnection(answer=answer)

    assert not applied(connection, manifests_in([str(tmp_path / "m.yaml")]))
    assert [each.path.rsplit("/", 1)[-1] for each in connection.sent] == ["q", "c"]


def test_a_manifest_of_an_unknown_kind_fails_the_verb_and_the_others_are_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with kubectl: a folder is not left half applied for one definition that is not installed."""
    odd = {**config("o"), "apiVersion": "example.com/v1", "kind": "Odd"}
    (tmp_path / "m.yaml").write_text(yaml.safe_dump_all([odd, config("c")]), encoding="utf-8")
    connection = FakeConnection()

    assert not applied(connection, manifests_in([str(tmp_path / "m.yaml")]))
    assert [each.path.rsplit("/", 1)[-1] for each in connection.sent] == ["c"]
    assert 'no matches for kind "Odd" in version "example.com/v1"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "kind", "helps"),
    [
        ("tonnage.dev/v1alpha1", "ModelServce", "did you mean ModelService?"),
        ("tonnage.dev/v1", "ModelService", "write tonnage.dev/v1alpha1"),
        ("tonnage.dev/v1alpha1", "ModelService", "install Tonnage's kinds first: tonnage crds"),
        ("example.com/v1", "ModelServce", "install its CustomResourceDefinition first"),
    ],
)
def test_a_kind_that_the_server_does_not_have_is_told_with_what_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, kind: str, helps: str
) -> None:
    spec = {"model": "m", "slo": {"tpot": "40ms"}}
    odd = {"apiVersion": version, "kind": kind, "metadata": {"name": "o"}, "spec": spec}
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(odd), encoding="utf-8")

    assert not applied(FakeConnection(), manifests_in([str(tmp_path / "m.yaml")]))
    assert capsys.readouterr().err.endswith(f'no matches for kind "{kind}" in version "{version}"; {helps}\n')


def test_a_manifest_of_another_namespace_than_the_options_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.safe_dump(config(namespace="elsewhere")), encoding="utf-8")
    connection = FakeConnection()

    with pytest.raises(Exception, match="is in namespace elsewhere, but -n is ns"):
        asyncio.run(apply_all(connection.cluster, manifests_in([str(manifest)]), "ns", "none", "name", force=False))

    assert connection.sent == []


def test_a_manifest_without_objects_is_wrong_use(tmp_path: Path) -> None:
    result = CliRunner().invoke(tonnage, ["apply", "-f", str(tmp_path)])

    assert result.exit_code == 2
    assert "contains no" in result.stderr
