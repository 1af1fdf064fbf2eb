"""What a command loads before it does anything: people wait for it at every Tab and every typing error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PLANNING = {"numpy", "pulp", "highspy", "ray", "matplotlib", "prometheus_client"}
KINDS = {"controller.api.fields", "controller.api.metadata", "controller.objects.manifests"}
BLOCKING_CLIENT = {"kubernetes.client", "kubernetes.config", "kubernetes.dynamic", "requests", "urllib3", "oauthlib"}


def loaded_by(*words: str) -> set[str]:
    """The modules in a process of its own after a command that failed or ended."""
    told = "atexit.register(lambda: print(json.dumps(sorted(sys.modules))))"
    command = f"sys.argv = {['tonnage', *words]!r}; from cli.main import main; main()"
    run = f"import atexit, json, sys; {told}; {command}"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)  # noqa: S603
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
    """A kubeconfig of a server that is not there."""
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "none"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path = tmp_path / "nobody"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def test_a_get_loads_neither_what_plans_nor_our_kinds_nor_the_blocking_client(nobody: Path) -> None:
    loaded = loaded_by("get", "pods", "--kubeconfig", str(nobody))

    assert "controller.kube.connection" in loaded, "it got as far as the connection"
    assert not loaded & (PLANNING | KINDS | BLOCKING_CLIENT)


def test_wrong_use_and_help_load_nothing_of_a_cluster() -> None:
    for words in (["get"], ["get", "--nonsense"], ["get", "--help"], ["--help"], ["apply", "--help"]):
        loaded = loaded_by(*words)

        assert not loaded & (PLANNING | KINDS | BLOCKING_CLIENT | {"aiohttp", "kubernetes", "yaml"}), words
