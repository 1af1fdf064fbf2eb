"""What a command loads before it does anything: people wait for it at every Tab and every typing error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PLANNING = {"numpy", "pandas", "pulp", "highspy", "ray", "matplotlib", "jinja2", "prometheus_client"}
KINDS = {"controller.api.fields", "controller.objects.manifests"}
OPERATOR = {"pydantic", "structlog", "rich"}
"""What an operator has beside its connection, and a look needs not."""


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


@pytest.mark.parametrize("words", [("get", "pods"), ("describe", "pod", "p"), ("events",)], ids=" ".join)
def test_a_look_at_a_cluster_loads_neither_what_plans_nor_our_kinds_nor_an_operators_client(
    nobody: Path, words: tuple[str, ...]
) -> None:
    loaded = loaded_by(*words, "--kubeconfig", str(nobody))

    assert "controller.kube.connection" in loaded, "it got as far as the connection"
    assert not loaded & (PLANNING | KINDS | OPERATOR)


def test_a_completion_loads_no_more_than_the_look_that_it_takes(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TONNAGE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"tonnage get --kubeconfig {nobody} mod")
    monkeypatch.setenv("COMP_CWORD", "4")

    loaded = loaded_by()

    assert "controller.kube.connection" in loaded
    assert not loaded & (PLANNING | KINDS | OPERATOR)


def test_usage_of_a_cluster_is_looked_up_without_loading_what_plans() -> None:
    code = "import sys, controller.queries.list_once, controller.queries.usage; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603

    assert "controller.deciders.decisions" not in done.stdout.split()


def test_wrong_use_and_help_load_nothing_of_a_cluster() -> None:
    for words in (["get"], ["get", "--nonsense"], ["get", "--help"], ["--help"], ["apply", "--help"]):
        loaded = loaded_by(*words)

        assert not loaded & (PLANNING | KINDS | OPERATOR | {"aiohttp", "yaml"}), words


def test_a_command_collects_little_garbage_while_it_loads() -> None:
    """Python's own threshold would collect some twenty times for the list of verbs alone, and find nothing."""
    count = "gc.get_stats()[0]['collections']"
    told = f"before = {count}; atexit.register(lambda: print({count} - before, file=sys.stderr))"
    command = (
        f"import atexit, gc, sys; {told}; sys.argv = ['tonnage', '--help']; import tonnage.__main__ as t; t.main()"
    )

    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)  # noqa: S603

    assert int(done.stderr) <= 3


def test_what_was_loaded_is_not_searched_for_garbage_at_exit() -> None:
    told = "atexit.register(lambda: print(gc.get_freeze_count(), file=sys.stderr))"  # called after what main registers
    command = (
        f"import atexit, gc, sys; {told}; sys.argv = ['tonnage', '--help']; import tonnage.__main__ as t; t.main()"
    )

    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)  # noqa: S603

    assert int(done.stderr) > 10_000
