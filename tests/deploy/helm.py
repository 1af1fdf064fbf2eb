"""Chart rendered by Helm: the installed one, or the one in Python."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[2] / "helm" / "tonnage"
RELEASE, NAMESPACE = "tonnage", "tonnage-system"

Values = Mapping[str, Any]


NO_HELM = "neither helm nor helm-python-sdk is installed"


class RefusedError(Exception):
    """Helm did not render or accept it; says why."""


def rendered(values: Values | None = None, chart: Path = CHART) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of the chart by kind and name. Raises RefusedError; skips where there is no Helm."""
    text = _by_tool(values or {}, chart) if shutil.which("helm") else _by_library(values or {}, chart)
    objects = [document for document in yaml.safe_load_all(text) if document]
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


def _by_tool(values: Values, chart: Path) -> str:
    command = [
        shutil.which("helm") or "helm",
        "template",
        RELEASE,
        str(chart),
        "--namespace",
        NAMESPACE,
        "--values",
        "-",
    ]
    run = subprocess.run(command, input=json.dumps(values), capture_output=True, check=False, text=True)  # noqa: S603
    if run.returncode:
        raise RefusedError(run.stderr)
    return run.stdout


def _by_library(values: Values, path: Path) -> str:
    chart = pytest.importorskip("helm_python.chart", reason=NO_HELM)
    errors = pytest.importorskip("helm_python.errors")
    try:
        with chart.Chart.load(path) as loaded:
            loaded.validate_schema(dict(values))
            files: dict[str, str] = loaded.render(dict(values), name=RELEASE, namespace=NAMESPACE)
    except errors.HelmError as error:
        raise RefusedError(str(error)) from error
    return "\n---\n".join(text for name, text in files.items() if not name.endswith(".txt"))


def lint_findings() -> list[str]:
    """What `helm lint --strict` has to say from a warning on; skips where there is no Helm."""
    if helm := shutil.which("helm"):
        run = subprocess.run([helm, "lint", "--strict", str(CHART)], capture_output=True, check=False, text=True)  # noqa: S603
        return [run.stdout + run.stderr] if run.returncode else []
    chart = pytest.importorskip("helm_python.chart", reason=NO_HELM)
    found = chart.lint(CHART, strict=True, with_subcharts=True)
    return [*found["errors"], *(message["error"] for message in found["messages"] if message["severity"] > 1)]


def install(kubeconfig: Path, values: Values | None = None) -> None:
    """Install the release into its namespace, which is there; skips where there is no Helm."""
    if shutil.which("helm"):
        return _on_cluster("install", kubeconfig, str(CHART), "--values", "-", values=values)
    config = pytest.importorskip("helm_python", reason=NO_HELM).Config
    with config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as cluster:
        cluster.install(CHART, RELEASE, dict(values or {}), namespace=NAMESPACE)
    return None


def upgrade(kubeconfig: Path, values: Values | None = None) -> None:
    if shutil.which("helm"):
        return _on_cluster("upgrade", kubeconfig, str(CHART), "--values", "-", values=values)
    config = pytest.importorskip("helm_python", reason=NO_HELM).Config
    with config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as cluster:
        cluster.upgrade(CHART, RELEASE, dict(values or {}), namespace=NAMESPACE)
    return None


def uninstall(kubeconfig: Path) -> None:
    if shutil.which("helm"):
        return _on_cluster("uninstall", kubeconfig)
    config = pytest.importorskip("helm_python", reason=NO_HELM).Config
    with config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as cluster:
        cluster.uninstall(RELEASE)
    return None


def _on_cluster(verb: str, kubeconfig: Path, *rest: str, values: Values | None = None) -> None:
    command = ["helm", verb, RELEASE, *rest, "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig)]
    run = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, check=False, text=True)  # noqa: S603
    if run.returncode:
        raise RefusedError(run.stderr)
