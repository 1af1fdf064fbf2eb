"""CPU time per start of commands, beside kubectl on the same server.

Each command runs as a process of its own, user and system time together, so that other work on the machine changes
little. The server is a fake one on loopback that answers discovery and one list, over plain HTTP: a certificate
adds what the system's TLS library takes, to both.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from benchmarks.cases import Row, case

COMPLETED = {"_TONNAGE_COMPLETE": "bash_complete", "COMP_WORDS": "tonnage get modelservices ", "COMP_CWORD": "3"}
"""Environment with which bash asks for the names behind `tonnage get modelservices`."""
ALONE = ("pass", "import click", "import http.client", "import yaml")
"""Programs without anything of ours: what the interpreter and each library of `get` take."""
OURS = {
    "--help": ("--help",),
    "get modelservices": ("get", "modelservices"),
    "explain modelservice.spec": ("explain", "modelservice.spec"),
    "top gpus": ("top", "gpus"),
    "Tab behind `get modelservices`": (),
}
KUBECTL = {
    "--help": ("--help",),
    "get modelservices": ("get", "modelservices"),
    "Tab behind `get modelservices`": ("__complete", "get", "modelservices", ""),
}


@case(
    "cli-start",
    "CPU time of our commands as whole processes, of kubectl, and of the libraries alone.",
    quick={"runs": 1, "commands": ("--help",), "alone": ("pass",)},
)
def cli_start(*, commands: Sequence[str] = tuple(OURS), alone: Sequence[str] = ALONE, runs: int = 11) -> Iterator[Row]:
    """A row for each command. alone: code that runs without anything of ours. runs: of each; the median counts."""
    kubectl = shutil.which("kubectl")
    with TemporaryDirectory() as folder, api_server() as url:
        config = Path(folder, "kubeconfig")
        config.write_text(json.dumps(kubeconfig(url)), encoding="utf-8")
        plain = {**os.environ, "KUBECONFIG": str(config), "HOME": folder}
        for name in commands:
            words = OURS[name]
            row: Row = {"command": name}
            ours = (sys.executable, "-m", "tonnage", *words)
            row["tonnage_s"] = round(cpu_s(ours, plain if words else {**plain, **COMPLETED}, runs), 3)
            if kubectl and name in KUBECTL:
                row["kubectl_s"] = round(cpu_s((kubectl, *KUBECTL[name]), plain, runs), 3)
            yield row
        for code in alone:
            alone_s = cpu_s((sys.executable, "-c", code), plain, runs)
            yield {"command": f"python -c '{code}'", "tonnage_s": round(alone_s, 3)}


def cpu_s(command: Sequence[str], environment: Mapping[str, str], runs: int) -> float:
    """Median of user and system time, seconds. One run before fills the caches. Raises CalledProcessError."""
    found = []
    for _ in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(found[1:])


def kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }


def _resource(plural: str, kind: str, scope: str = "Namespaced") -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "singularResource": kind.lower(),
        "verbs": ["get", "list", "watch"],
    }


def _groups(name: str, version: str, *resources: dict[str, Any]) -> dict[str, Any]:
    group = {"metadata": {"name": name}, "versions": [{"version": version, "resources": resources}]}
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [group]}


ANSWERS = {
    "/api": _groups("", "v1", _resource("pods", "Pod"), _resource("nodes", "Node", "Cluster")),
    "/apis": _groups("tonnage.dev", "v1alpha1", _resource("modelservices", "ModelService")),
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the library's name
        path = self.path.partition("?")[0]
        known = ANSWERS.get(path)
        if known is None and "as=Table" in self.headers.get("Accept", ""):
            known = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {},
                "columnDefinitions": [],
                "rows": [],
            }
        elif known is None:
            known = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
        body = json.dumps(known).encode()
        self.send_response(200)
        self.send_header("Content-Type", AGGREGATED if path in ANSWERS else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Nothing: the requests are not of interest."""


@contextmanager
def api_server() -> Iterator[str]:
    """URL of a fake API server on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()
