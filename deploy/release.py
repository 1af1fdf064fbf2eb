"""Release of the chart, by Helm's tool or its Python binding: rendered, linted, installed, upgraded, uninstalled."""

import importlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent.parent / "helm" / "tonnage"
RELEASE, NAMESPACE = "tonnage", "tonnage-system"

Values = Mapping[str, Any]
Objects = dict[tuple[str, str], dict[str, Any]]
"""Objects by kind and name."""


class NoHelmError(Exception):
    """Neither Helm nor its Python binding is installed."""


class RefusedError(Exception):
    """Helm did not render or accept the chart or its values; the message has Helm's reason."""


def rendered(values: Values | None = None, chart: Path = CHART) -> Objects:
    """Objects of the chart. Raises NoHelmError, RefusedError."""
    text = _by_tool(values or {}, chart) if shutil.which("helm") else _by_library(values or {}, chart)
    objects = [document for document in yaml.safe_load_all(text) if document]
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


def _by_tool(values: Values, chart: Path) -> str:
    return _helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, "--values", "-", values=values)


def _by_library(values: Values, path: Path) -> str:
    chart, errors = _binding("helm_python.chart"), _binding("helm_python.errors")
    try:
        with chart.Chart.load(path) as loaded:
            loaded.validate_schema(dict(values))
            files: dict[str, str] = loaded.render(dict(values), name=RELEASE, namespace=NAMESPACE)
    except errors.HelmError as error:
        raise RefusedError(str(error)) from error
    return "\n---\n".join(text for name, text in files.items() if not name.endswith(".txt"))


def lint_findings() -> list[str]:
    """Findings of `helm lint --strict`, from warnings on. Raises NoHelmError."""
    if shutil.which("helm"):
        try:
            _helm("lint", "--strict", str(CHART))
        except RefusedError as error:
            return [str(error)]
        return []
    found = _binding("helm_python.chart").lint(CHART, strict=True, with_subcharts=True)
    return [*found["errors"], *(message["error"] for message in found["messages"] if message["severity"] > 1)]


def install(kubeconfig: Path, values: Values | None = None) -> None:
    """Install the release into its namespace, which must exist. Raises NoHelmError, RefusedError."""
    if shutil.which("helm"):
        return _on_cluster("install", kubeconfig, str(CHART), "--values", "-", values=values)
    with _binding("helm_python").Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as cluster:
        cluster.install(CHART, RELEASE, dict(values or {}), namespace=NAMESPACE)
    return None


def upgrade(kubeconfig: Path, values: Values | None = None) -> None:
    """Upgrade the release to these values. Raises NoHelmError, RefusedError."""
    if shutil.which("helm"):
        return _on_cluster("upgrade", kubeconfig, str(CHART), "--values", "-", values=values)
    with _binding("helm_python").Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as cluster:
        cluster.upgrade(CHART, RELEASE, dict(values or {}), namespace=NAMESPACE)
    return None


def uninstall(kubeconfig: Path) -> None:
    """Uninstall the release. Raises NoHelmError, RefusedError."""
    if shutil.which("helm"):
        return _on_cluster("uninstall", kubeconfig)
    with _binding("helm_python").Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as cluster:
        cluster.uninstall(RELEASE)
    return None


def _on_cluster(verb: str, kubeconfig: Path, *rest: str, values: Values | None = None) -> None:
    _helm(verb, RELEASE, *rest, "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig), values=values)


def _helm(*arguments: str, values: Values | None = None) -> str:
    command = [shutil.which("helm") or "helm", *arguments]
    run = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, check=False, text=True)  # noqa: S603
    if run.returncode:
        raise RefusedError(run.stderr or run.stdout)
    return run.stdout


def _binding(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NoHelmError("neither helm nor helm-python-sdk is installed") from error
