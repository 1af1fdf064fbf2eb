"""The chart as tests need it: rendered, checked by Helm, and on a cluster, by `helm` or by its Python binding."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.release_files import CHART, binding

RELEASE, NAMESPACE = "tonnage", "tonnage-system"

Values = Mapping[str, Any]
Objects = dict[tuple[str, str], dict[str, Any]]
"""Objects by kind and name."""


class HelmRefusedError(Exception):
    """Helm did not render or accept the chart or its values; the message has Helm's reason."""


def rendered(values: Values | None = None, chart: Path = CHART) -> Objects:
    """Objects of the chart. Raises NoHelmError, HelmRefusedError."""
    if shutil.which("helm"):
        text = _helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, "--values", "-", values=values)
    else:
        text = _by_library(values or {}, chart)
    objects = [document for document in yaml.safe_load_all(text) if document]
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


def _by_library(values: Values, path: Path) -> str:
    chart, errors = binding("helm_python.chart"), binding("helm_python.errors")
    try:
        with chart.Chart.load(path) as loaded:
            loaded.validate_schema(dict(values))
            files: dict[str, str] = loaded.render(dict(values), name=RELEASE, namespace=NAMESPACE)
    except errors.HelmError as error:
        raise HelmRefusedError(str(error)) from error
    return "\n---\n".join(text for name, text in files.items() if not name.endswith(".txt"))


def lint_findings() -> list[str]:
    """Findings of `helm lint --strict`, from warnings on. Raises NoHelmError."""
    if shutil.which("helm"):
        try:
            _helm("lint", "--strict", str(CHART))
        except HelmRefusedError as error:
            return [str(error)]
        return []
    found = binding("helm_python.chart").lint(CHART, strict=True, with_subcharts=True)
    return [*found["errors"], *(message["error"] for message in found["messages"] if message["severity"] > 1)]


def install(kubeconfig: Path, values: Values | None = None, name: str = RELEASE, namespace: str = NAMESPACE) -> None:
    """Install a release into its namespace, which must exist. Raises NoHelmError, HelmRefusedError."""
    _change("install", kubeconfig, values, name, namespace)


def upgrade(kubeconfig: Path, values: Values | None = None) -> None:
    """Upgrade the release to these values. Raises NoHelmError, HelmRefusedError."""
    _change("upgrade", kubeconfig, values)


def uninstall(kubeconfig: Path) -> None:
    """Uninstall the release. Raises NoHelmError, HelmRefusedError."""
    _change("uninstall", kubeconfig)


def _change(
    verb: str, kubeconfig: Path, values: Values | None = None, name: str = RELEASE, namespace: str = NAMESPACE
) -> None:
    is_end = verb == "uninstall"
    if shutil.which("helm"):
        chart = () if is_end else (str(CHART), "--values", "-")
        _helm(verb, name, *chart, "--namespace", namespace, "--kubeconfig", str(kubeconfig), values=values)
        return
    helm = binding("helm_python")
    try:
        with helm.Config(kubeconfig_path=kubeconfig, namespace=namespace) as cluster:
            if is_end:
                cluster.uninstall(name)
            else:
                getattr(cluster, verb)(CHART, name, dict(values or {}), namespace=namespace)
    except helm.HelmError as error:
        raise HelmRefusedError(str(error)) from error


def _helm(*arguments: str, values: Values | None = None) -> str:
    command = [shutil.which("helm") or "helm", *arguments]
    run = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, check=False, text=True)  # noqa: S603
    if run.returncode:
        raise HelmRefusedError(run.stderr or run.stdout)
    return run.stdout
