"""The operator as the chart installs it: its CRDs, its account's rights and its settings, on a local control plane."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cluster.errors import ControlPlaneError
from controller.api.kinds import OWN_KINDS
from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from deploy.release_files import NoHelmError
from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs, control_plane_programs, progress_on
from simulator.controlplane.commands import HOST, ControlPlaneSettings, Folder
from simulator.controlplane.server import SOURCES, ControlPlane, down, up
from tests.controlplane.schedulers import Running, free_ports, fresh_log, says_ok, wait_until
from tests.controlplane.testbed import ANSWER_WITHIN_S, LEASE_S
from tests.rigs import chart

Object = Mapping[str, Any]
ACCOUNT = "tonnage"
"""Service account that the chart creates for the operator."""
EVERYWHERE = {"managedNamespaces": "all"}


@dataclass(frozen=True, slots=True)
class Site:
    """Control plane with the chart installed; no operator runs yet."""

    server: ControlPlane
    programs: Programs

    def kubectl(self, *arguments: str, stdin: object = None) -> str:
        """kubectl as administrator. Raises ControlPlaneError with its message."""
        command = [str(self.programs["kubectl"]), "--kubeconfig", str(self.server.kubeconfig), *arguments]
        text = "" if stdin is None else json.dumps(stdin)
        done = subprocess.run(command, input=text, capture_output=True, check=False, text=True)  # noqa: S603
        if done.returncode:
            raise ControlPlaneError(f"kubectl {' '.join(arguments[:3])}: {done.stderr.strip()}")
        return str(done.stdout)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """Objects that `kubectl get` lists."""
        found: list[dict[str, Any]] = msgspec.json.decode(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found


def installed_on(server: ControlPlane, programs: Programs, values: Mapping[str, Any] | None = None) -> Site:
    """The chart on a server for all namespaces, with its default values besides these. Raises ControlPlaneError."""
    site = Site(server, programs)
    site.kubectl("create", "namespace", chart.NAMESPACE)
    try:
        chart.install(server.kubeconfig, {**EVERYWHERE, **(values or {})})
    except (NoHelmError, chart.HelmRefusedError) as error:
        raise ControlPlaneError(f"installing the chart: {error}") from error
    for kind in OWN_KINDS:
        site.kubectl("wait", "--for=condition=Established", f"crd/{kind.definition}", "--timeout=60s")
    return site


@contextmanager
def operator_of(site: Site, overrides: Mapping[str, object] | None = None) -> Iterator[tuple[Running, int]]:
    """The operator's process, once it is ready, and the port of its probes.

    It has the chart's account and default settings; only its address and ports are those of this machine.
    overrides: settings that a benchmark changes, to be named beside its figures.
    """
    folder = site.server.folder
    probes, metrics = free_ports(2)
    own = {"kubeconfig": str(account_of(site)), "host": HOST, "probe_port": probes, "metrics_port": metrics}
    settings = {**chart_settings(), **own, "log_format": "json", **(overrides or {})}
    config = folder.path / "operator.yaml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    log = fresh_log(folder, "operator")
    command = [sys.executable, "-m", "cli.main", "operator", "run", "--config", str(config)]
    process = processes.start("operator", command, log, {**os.environ, "PYTHONPATH": str(SOURCES)})
    try:
        wait_until(lambda: says_ok(probes, "/readyz"), process, log)
        yield Running(process, log, metrics), probes
    finally:
        processes.stop(process)


def chart_settings() -> dict[str, Any]:
    """Settings of the operator that the chart writes for all namespaces, at its default values otherwise."""
    objects = chart.rendered(EVERYWHERE)
    found: dict[str, Any] = yaml.safe_load(objects["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"]) or {}
    return found


def account_of(site: Site) -> Path:
    """Kubeconfig of the operator's service account."""
    config = yaml.safe_load(site.server.kubeconfig.read_text(encoding="utf-8"))
    token = site.kubectl("create", "token", ACCOUNT, "--namespace", chart.NAMESPACE, "--duration=8h").strip()
    config["users"][0]["user"] = {"token": token}
    path = site.server.folder.path / "account.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def until(claim: Callable[[], bool], what: str, within_s: float, pause_s: float = 0.5) -> None:
    """Wait until the claim holds. Raises ControlPlaneError with `what` when it does not in time."""
    over_at_s = time.monotonic() + within_s
    while not claim():
        if time.monotonic() > over_at_s:
            raise ControlPlaneError(f"not within {within_s:g} s: {what}")
        time.sleep(pause_s)


BINDING = "validatingadmissionpolicybinding/tonnage-marks"


@contextmanager
def site_with(nodes: Iterable[Object] | str, values: Mapping[str, Any] | None = None) -> Iterator[Site]:
    """The chart with these values on a control plane of its own with these nodes. Raises ControlPlaneError."""
    programs = control_plane_programs(progress_on(sys.stderr))
    with tempfile.TemporaryDirectory(prefix="tonnage-operator-", ignore_cleanup_errors=True) as path:
        folder, manifests = Folder(Path(path) / "server"), Path(path) / "nodes.yaml"
        text = nodes if isinstance(nodes, str) else yaml.dump_all(nodes, Dumper=yaml.CSafeDumper)
        manifests.write_text(text, encoding="utf-8")
        try:
            yield installed_on(
                up(folder, ControlPlaneSettings(manifests=str(manifests), lease_s=LEASE_S), programs), programs, values
            )
        finally:
            if folder.state.exists():
                down(folder, delete=True)


@asynccontextmanager
async def api_of(site: Site) -> AsyncIterator[Connection]:
    """A connection as administrator."""
    access = ApiAccess(kubeconfig=str(site.server.kubeconfig), request_timeout_s=ANSWER_WITHIN_S)
    async with await connect(access, time.monotonic) as api:
        yield api


@contextmanager
def marks_by_anybody(site: Site) -> Iterator[None]:
    """Lets the administrator make pods that bear Tonnage's marks, as a cluster has them whose operator was away."""
    found = json.loads(site.kubectl("get", BINDING, "-o", "json"))
    kept = {name: value for name, value in found["metadata"].items() if name in ("name", "labels", "annotations")}
    site.kubectl("delete", BINDING)
    yield
    site.kubectl("create", "-f", "-", stdin={**found, "metadata": kept})


def is_applied(site: Site, objects: Mapping[str, Any]) -> bool:
    """Whether the server took them all; it goes by a deleted binding for a moment."""
    try:
        site.kubectl("apply", "--server-side", "-f", "-", stdin=objects)
    except ControlPlaneError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return False
    return True
