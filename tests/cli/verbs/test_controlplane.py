"""`tonnage controlplane`, as far as it goes without a server: tests/controlplane starts real ones."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from cli.main import tonnage
from cli.verbs.controlplane import settings_from
from simulator.controlplane.commands import ControlPlaneSettings, Folder, Ports
from simulator.controlplane.server import StartedState


def controlplane(*arguments: str) -> Result:
    return CliRunner().invoke(tonnage, ["controlplane", *arguments])


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for $KUBEBUILDER_ASSETS, as most are: without a scheduler."""
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    return folder


def test_a_dry_run_prints_the_command_lines_and_makes_nothing(assets: Path, tmp_path: Path) -> None:
    done = controlplane("up", "--dir", str(tmp_path / "server"), "--nodes", "5", "--dry-run")

    programs = [line.split()[0] for line in done.stdout.splitlines()]
    assert programs[:2] == [str(assets / "etcd"), str(assets / "kube-apiserver")]
    assert "--authorization-mode=Node,RBAC" in done.stdout
    assert '"nodes":5' in done.stdout
    assert not (tmp_path / "server").exists()


def test_everything_listens_on_loopback_alone(assets: Path, tmp_path: Path) -> None:
    lines = controlplane("up", "--dir", str(tmp_path), "--dry-run").stdout.split()

    listeners = [word for word in lines if word.startswith(("--listen-", "--bind-address"))]
    assert len(listeners) == 3  # etcd's clients and peers, and the API server
    assert all("127.0.0.1" in word for word in listeners)


def test_a_fleet_is_made_up_or_read_not_both(assets: Path) -> None:
    assert controlplane("up", "--nodes", "5", "--nodes-from", "examples/nodes.yaml").exit_code == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [("**bold**", ", document 1, line 1, column 2: is not YAML"), ("kind: Pod", ": has no manifest of kind Node")],
)
def test_a_wrong_file_of_nodes_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "no such folder"))
    file = tmp_path / "nodes.yaml"
    file.write_text(text, encoding="utf-8")

    done = controlplane("up", "--dir", str(tmp_path / "server"), "--nodes-from", str(file))

    assert done.exit_code == 2
    assert f"nodes.yaml{problem}" in done.stderr
    assert not (tmp_path / "server").exists()


def test_assets_without_an_api_server_are_named(assets: Path, tmp_path: Path) -> None:
    (assets / "kube-apiserver").unlink()

    done = controlplane("up", "--dir", str(tmp_path / "server"))

    assert done.exit_code == 1
    assert "has no kube-apiserver" in done.stderr


def test_omitted_options_keep_their_values(tmp_path: Path) -> None:
    before = StartedState(Ports(1, 2, 3, 4, 5), ControlPlaneSettings(nodes=50, seed=7))
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(before))

    assert settings_from(Folder(tmp_path), seed=None, node_lifecycle=True) == ControlPlaneSettings(
        nodes=50, seed=7, node_lifecycle=True
    )


def test_the_status_of_nothing_is_a_failure(tmp_path: Path) -> None:
    done = controlplane("status", "--dir", str(tmp_path), "-o", "json")

    assert (done.exit_code, json.loads(done.stdout)["processes"]) == (1, [])


def test_stopping_what_does_not_run_is_done(tmp_path: Path) -> None:
    done = controlplane("down", "--dir", str(tmp_path / "nothing"), "--delete")

    assert (done.exit_code, done.stderr) == (0, "nothing was running\n")


def test_a_folder_that_holds_no_control_plane_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()

    done = controlplane("down", "--dir", str(tmp_path), "--delete")

    assert done.exit_code == 1
    assert (tmp_path / "thesis.txt").exists()
