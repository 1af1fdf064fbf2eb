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
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.cases import Row, case
from tests.rigs.fake_api_server import api_server, kubeconfig

COMPLETED = {"_TONNAGE_COMPLETE": "bash_complete", "COMP_WORDS": "tonnage get modelservices ", "COMP_CWORD": "3"}
"""Environment with which bash asks for the names behind `tonnage get modelservices`."""
ALONE = ("pass", "import click", "import http.client", "import yaml")
"""Programs without anything of ours: what the interpreter and each library of `get` take."""
OURS = {
    "--help": ("--help",),
    "get modelservices": ("get", "modelservices"),
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
