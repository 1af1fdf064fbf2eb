"""KubeRay's own operator, built from its Go module into the cache of the control plane's programs, and its pods.

    python -m tests.controlplane.kuberay

builds it, which takes ten minutes on two cores; the tests use it where it is.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from simulator.controlplane import processes
from simulator.controlplane.binaries import cache_root, environment, find_go
from simulator.controlplane.commands import AUTHORITY
from simulator.controlplane.processes import locked
from simulator.controlplane.server import ControlPlane
from tests.chaos.nodes import send, tree_of
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.schedulers import free_ports

VERSION = "v1.5.0"
MODULE = f"github.com/ray-project/kuberay/ray-operator@{VERSION}"
FOLDER = cache_root() / f"kuberay-{VERSION}"
PROGRAM, CRDS = FOLDER / "kuberay", FOLDER / "crds"
ROOT = Path(__file__).parents[2]

Object = dict[str, Any]


def skip_unless_built() -> None:
    if not (PROGRAM.exists() and CRDS.exists()):
        pytest.skip("KubeRay's operator is not built: python -m tests.controlplane.kuberay")
    if os.geteuid():
        pytest.skip("the autoscaler's token is at a fixed place: it needs a mount namespace, which root may make")
    pytest.importorskip("ray")
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        pytest.skip("Ray gives its nodes 30 s to start, which a busy machine does not: run this file alone")


def built() -> Path:
    """Path of the operator, built first where it is not there, with its CRDs beside it. Raises BuildError."""
    go, unfinished = str(find_go()), FOLDER / "unfinished"
    with locked(FOLDER / ".lock"):
        if not PROGRAM.exists():
            there = {**environment(), "GOBIN": str(unfinished)}
            subprocess.run([go, "install", "-trimpath", "-ldflags=-s -w", MODULE], env=there, check=True)  # noqa: S603
            download = [go, "mod", "download", "-json", MODULE]
            said = subprocess.run(download, env=there, check=True, capture_output=True, cwd=unfinished)  # noqa: S603
            shutil.copytree(Path(json.loads(said.stdout)["Dir"]) / "config/crd/bases", CRDS)
            (unfinished / "ray-operator").rename(PROGRAM)
    return PROGRAM


@contextmanager
def kuberay_on(server: ControlPlane, kubectl: Kubectl, folder: Path) -> Iterator[None]:
    """KubeRay's operator beside a server."""
    kubectl("apply", "--server-side", "-f", str(CRDS))
    kubectl("wait", "--for=condition=Established", "crd", "--all")
    (probes,) = free_ports(1)
    command = [str(PROGRAM), "--kubeconfig", str(server.kubeconfig), "--metrics-addr", "0"]
    command += ["--health-probe-bind-address", f"127.0.0.1:{probes}", "--enable-leader-election=false"]
    # No container waits for another here: what a pod runs is started once the head is there.
    own = {**os.environ, "ENABLE_INIT_CONTAINER_INJECTION": "false"}
    process = processes.start("kuberay", command, folder / "kuberay.log", own)
    try:
        yield
    finally:
        processes.stop(process)


@dataclass
class RayKubelet:
    """Runs on this machine, as processes, what containers of a RayCluster's pods would run, once these have a node.

    All pods have one host: ports are free ones, and names of services stand for this machine.
    """

    server: ControlPlane
    kubectl: Kubectl
    cluster: str
    logs: Path
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Paths of the containers by paths on this machine."""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tngk")))
    port: int = 0
    """Of the head's tables."""
    driver_port: int = 0
    started: dict[str, list["subprocess.Popen[bytes]"]] = field(default_factory=dict)
    """Processes by uid of their pod."""
    seen: list[int] = field(default_factory=list)
    """Number of workers at each look."""
    _ends: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.port, self.driver_port = free_ports(2)

    @property
    def address(self) -> str:
        return f"{own_address()}:{self.port}"

    def pods(self, kind: str) -> list[Object]:
        """Pods of the head or of workers."""
        chosen = f"ray.io/cluster={self.cluster},ray.io/node-type={kind}"
        found: list[Object] = self.kubectl.get("pods", "-l", chosen)["items"]
        return found

    def run(self) -> None:
        while not self._ends.wait(0.5):
            pods = [*self.pods("head"), *self.pods("worker")]
            self.seen.append(sum(each["metadata"]["labels"]["ray.io/node-type"] == "worker" for each in pods))
            for each in pods:
                bound = each["spec"].get("nodeName") and not each["metadata"].get("deletionTimestamp")
                if bound and each["metadata"]["uid"] not in self.started and self._is_quiet():
                    self.started[each["metadata"]["uid"]] = [*self._start(each)]
                elif is_over(self.started.get(each["metadata"]["uid"], ())) and each["status"]["phase"] == "Running":
                    # Of the policy Never, which KubeRay sets for Ray's autoscaler.
                    name, failed = each["metadata"]["name"], json.dumps({"status": {"phase": "Failed"}})
                    self.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", failed)
            for uid in self.started.keys() - {each["metadata"]["uid"] for each in pods}:
                self._stop(self.started.pop(uid))

    def _is_quiet(self) -> bool:
        """Whether Ray runs in what was started: it gives up a start after 30 s, and here all have one machine."""
        running = [each[0] for each in self.started.values() if not is_over(each)]
        logs = "".join(path.read_text("utf-8", "replace") for path in self.logs.glob("*.log"))
        return logs.count("Ray runtime started") >= len(running)

    def close(self) -> None:
        self._ends.set()

    def end_all(self) -> None:
        for each in self.started.values():
            self._stop(each)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, pod: Object) -> Iterator["subprocess.Popen[bytes]"]:
        own = self.folder / pod["metadata"]["name"]
        own.mkdir()
        for volume in pod["spec"].get("volumes", ()):
            for item in volume.get("downwardAPI", {}).get("items", ()):
                (own / volume["name"]).mkdir(exist_ok=True)
                (own / volume["name"] / item["path"]).write_text(field_of(pod, item["fieldRef"]), encoding="utf-8")
        for container in pod["spec"]["containers"]:
            words = [*container.get("command", ()), *container["args"]]
            if container["name"] == "driver":
                words = ["python", "-m", "cli.main", *container["args"]]
            env = {each["name"]: value_of(pod, each) for each in container.get("env", ())}
            mounted = {f"{m['mountPath']}/": f"{own / m['name']}/" for m in container["volumeMounts"]}
            mounted = {**{k: v for k, v in mounted.items() if Path(v).exists()}, **self.replaced}
            words = [self._here(each, env, mounted) for each in words]
            env = {name: self._here(text, {}, mounted) for name, text in env.items()}
            if container["name"] == "autoscaler":
                words = [*self._with_rights(), *words]
            with (self.logs / f"{pod['metadata']['name']}-{container['name']}.log").open("wb") as log:
                yield subprocess.Popen(  # noqa: S603 - what KubeRay's operator wrote
                    words, cwd=ROOT, env={**os.environ, **env, **self._own(container["name"])}, stdout=log, stderr=log,
                    stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip

    def _own(self, container: str) -> Mapping[str, str]:
        """Environment of this machine in place of the pod's."""
        own = {"HOME": str(self.folder), "RAY_TMPDIR": str(self.folder), "RAY_ADDRESS": self.address}
        own |= {"RAY_NODE_IP": own_address(), "TMPDIR": str(self.folder), "RAY_raylet_start_wait_time_s": "120"}
        if container == "autoscaler":
            own |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1",
                    "KUBERNETES_SERVICE_PORT_HTTPS": self.server.url.rpartition(":")[2]}  # fmt: skip
        return own

    def _with_rights(self) -> list[str]:
        """Start of a command that sees the token of the head's service account where a pod has it."""
        token = self.folder / "token"
        token.write_text(self.kubectl("create", "token", self.cluster, "--duration=1h").strip(), encoding="utf-8")
        authority = self.server.folder.pki / f"{AUTHORITY}.crt"
        there = "/run/secrets/kubernetes.io/serviceaccount"
        own = f"mount -t tmpfs secrets /run && mkdir -p {there} && cp {token} {there}/token && "
        own += f'cp {authority} {there}/ca.crt && exec "$@"'
        return [shutil.which("unshare") or "unshare", "--mount", "/bin/sh", "-c", own, "sh"]

    def _here(self, text: str, env: Mapping[str, str], mounted: Mapping[str, str]) -> str:
        for name, value in env.items():
            text = text.replace(f"$({name})", value)
        for there, here in mounted.items():
            text = text.replace(there, here)
        text = re.sub(r"--(node-manager|metrics-export|dashboard-agent-listen)-port=\d+", "", text)
        text = re.sub(r"(--ray-address|--address)=\S+:6379", rf"\1={self.address}", text)
        text = text.replace("--listen=0.0.0.0:6390", f"--listen=127.0.0.1:{self.driver_port}")
        if "ray start --head" in text:
            text = text.replace("ray start --head", f"ray start --head --port={self.port}")
        if "kuberay-autoscaler" in text:
            text = f"{text} --gcs-address={self.address}"
        return text

    def _stop(self, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        left = [pid for each in processes for pid in tree_of(each.pid)]
        for each in processes:
            each.terminate()
        over_at_s = time.monotonic() + 5
        for each in processes:
            with suppress(subprocess.TimeoutExpired):
                each.wait(max(0.1, over_at_s - time.monotonic()))
        for pid in left:
            send(pid, signal.SIGKILL)
        for each in processes:
            each.wait()


def is_over(processes: Sequence["subprocess.Popen[bytes]"]) -> bool:
    """Whether the first of a pod's containers, which is Ray's, has ended."""
    return bool(processes) and processes[0].poll() is not None


def own_address() -> str:
    """Address of this machine, as Ray finds it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def field_of(pod: Object, ref: Mapping[str, str]) -> str:
    """What the downward API says for a field."""
    if chosen := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", ref["fieldPath"]):
        return str(pod["metadata"].get(chosen[1], {}).get(chosen[2], ""))
    part, _, name = ref["fieldPath"].partition(".")
    return str(pod[part].get(name, ""))


def value_of(pod: Object, variable: Mapping[str, Any]) -> str:
    """A variable's value, as a kubelet would make it."""
    ref = variable.get("valueFrom", {}).get("fieldRef")
    return field_of(pod, ref) if ref else str(variable.get("value", ""))


@contextmanager
def played(kubelet: RayKubelet) -> Iterator[RayKubelet]:
    thread = Thread(target=kubelet.run, daemon=True)
    thread.start()
    try:
        yield kubelet
    finally:
        kubelet.close()
        thread.join(30)
        kubelet.end_all()


if __name__ == "__main__":
    print(built())  # noqa: T201 - a program's answer
