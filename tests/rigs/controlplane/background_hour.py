"""Background work of an operator at the chart's defaults, on the example fleet: what ran on Ray, and what Ray took.

    python -m tests.rigs.controlplane.background_hour --minutes 60

The examples' services have a ScalingPolicy each, whose loads a real Prometheus has measured for days. Beside addresses,
ports and Prometheus, all settings are those of the chart. At the end another operator becomes the leader.
"""

import argparse
import json
import os
import re
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import pi, sin
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from simulator.controlplane.processes import Process
from tests.builders.fake_vllm import MODEL, FakeVllm, MetricsServer
from tests.builders.live_prometheus import LivePrometheus, Scraped
from tests.builders.prometheus_history import import_history
from tests.chaos.nodes import parents, tree_of
from tests.controlplane import installation
from tests.controlplane.installation import Site, operator_of, site_with
from tests.rigs.background_fits import cpu_s, pss_mb
from tests.rigs.controlplane.operated import list_of
from tests.rigs.prometheus import prometheus_program

EXAMPLES = Path(__file__).parents[3] / "examples"
SERVICES: Mapping[str, float] = {"chat": 30.0, "code-completion": 10.0, "summaries": 6.0}
"""Requests per second of each service on average, as in its manifest."""
DAY_S, WAVE, NOISE = 86_400.0, 0.5, 0.05
LOOK_S, IDLE_S = 5.0, 60.0
WITHIN_S = 300.0
DONE = re.compile(r'tonnage_background_tasks_total\{kind="(\w+)",result="(\w+)"\} (\S+)')


def rate_at(mean: float, at_s: float, noise: np.random.Generator) -> float:
    """Load of a service with a daily wave."""
    return mean * (1 + WAVE * sin(2 * pi * at_s / DAY_S)) * max(0.0, 1 + NOISE * float(noise.standard_normal()))


@dataclass(slots=True)
class RayUse:
    """What the processes of the operator's driver, in their OS session, took."""

    operator: Process
    most_pss_mb: float = 0.0
    programs: Counter[str] = field(default_factory=Counter)
    """Most processes at a time, by program."""
    spent_s: dict[int, float] = field(default_factory=dict)
    up_s: float = 0.0
    _looked_s: float = field(default_factory=time.monotonic)

    def pids(self) -> list[int]:
        drivers = [pid for pid in tree_of(self.operator.pid) if "controller.background.driver" in _command(pid)]
        return [pid for pid in parents() if drivers and _session(pid) == drivers[0]]

    def look(self) -> None:
        pids = self.pids()
        now_s = time.monotonic()
        self.up_s += (now_s - self._looked_s) * bool(pids)
        self._looked_s = now_s
        self.spent_s |= cpu_s(pids)
        self.most_pss_mb = max(self.most_pss_mb, pss_mb(pids))
        self.programs |= Counter(filter(None, map(_program, pids)))

    def idle_core_share(self, for_s: float) -> float:
        """Share of a core that they take now, when there is no task."""
        pids = self.pids()
        before = cpu_s(pids)
        time.sleep(for_s)
        after = cpu_s(pids)
        return sum(after[pid] - before[pid] for pid in after.keys() & before.keys()) / for_s


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _program(pid: int) -> str:
    words = _command(pid)
    known = ("gcs_server", "raylet", "controller.background.driver", "dashboard/agent.py", "runtime_env/agent/main.py")
    return next((name for name in known if name in words), words.partition(" ")[0])


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


@dataclass(frozen=True, slots=True)
class Loaded:
    """The example fleet on a control plane, and a Prometheus that measures its services."""

    site: Site
    prometheus: LivePrometheus
    servers: Mapping[str, FakeVllm]
    noise: np.random.Generator

    def go_on(self) -> None:
        """Gives each service the load of this instant."""
        for name, server in self.servers.items():
            server.change(offered_per_s=rate_at(SERVICES[name], time.time(), self.noise))

    @contextmanager
    def operator(self) -> Iterator["Operated"]:
        overrides = {"autoscaler": {"prometheus": {"url": self.prometheus.url}}}
        with operator_of(self.site, overrides) as (running, _):
            yield Operated(running.process, running.metrics_port)

    def untrusted(self) -> list[str]:
        """Policies whose forecast is not trusted, or which have none."""
        policies = self.site.items("scalingpolicies", "--all-namespaces")
        states = {
            each["metadata"]["name"]: {
                one["type"]: one["status"] for one in each.get("status", {}).get("conditions", [])
            }
            for each in policies
        }
        return [name for name, found in states.items() if found.get("ForecastTrusted") != "True"]


@dataclass(frozen=True, slots=True)
class Operated:
    process: Process
    metrics_port: int

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def ran(self) -> dict[str, int]:
        """Background tasks that ended, by kind and result."""
        return {f"{kind} {result}": int(float(count)) for kind, result, count in DONE.findall(self.metrics())}

    def is_idle(self) -> bool:
        return "tonnage_background_tasks_open 0.0" in self.metrics() and "tonnage_background_up 1.0" in self.metrics()


@contextmanager
def loaded_fleet(days: float) -> Iterator[Loaded]:
    program = prometheus_program()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="background-")))
        noise, now_s = np.random.default_rng(1), int(time.time())
        targets, servers = [], {}
        for name, mean in SERVICES.items():
            labels = {"namespace": "default", "pod": f"{name}-0", "service": name}
            import_history(
                program, folder, labels, partial(rate_at, mean, noise=noise), now_s - int(days * DAY_S), now_s
            )
            servers[name] = FakeVllm(time.monotonic, offered_per_s=mean, capacity_per_s=1000.0)
            metrics = MetricsServer(servers[name])
            stack.callback(metrics.close)
            targets.append(Scraped(metrics.port, labels))
        prometheus = LivePrometheus(program, folder, targets)
        stack.callback(prometheus.kill)
        prometheus.start()
        site = stack.enter_context(site_with((EXAMPLES / "nodes.yaml").read_text(encoding="utf-8")))
        objects = list_of([*_examples(), *map(_policy, SERVICES)])
        with installation.marks_by_anybody(site):
            installation.until(lambda: installation.is_applied(site, objects), "the objects are applied", 60.0)
        yield Loaded(site, prometheus, servers, noise)


def _examples() -> Iterator[Mapping[str, Any]]:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        documents = yaml.safe_load_all(path.read_text(encoding="utf-8")) if path.stem != "nodes" else ()
        yield from (each for document in documents if document for each in document.get("items", [document]))


def _policy(service: str) -> Mapping[str, Any]:
    """The example's policy for another service, with the labels of its metrics."""
    path = EXAMPLES / "scaling" / "scaling-policy.yaml"
    policy = yaml.safe_load(path.read_text(encoding="utf-8"))
    labels = {"model_name": MODEL, "service": service}
    policy["metadata"] = {"name": service, "namespace": "default"}
    policy["spec"]["target"]["name"] = service
    policy["spec"]["demand"]["sources"] = [{"role": "requests", "prometheus": {"preset": "vllm", "labels": labels}}]
    return dict(policy)


def background_hour(minutes: float, days: float = 7.0, idle_s: float = IDLE_S) -> dict[str, Any]:
    """What ran on Ray, what that took, and what a new leader fits again."""
    with loaded_fleet(days) as fleet:
        with fleet.operator() as operated:
            began_s, use, idle = time.monotonic(), RayUse(operated.process), None
            while time.monotonic() < began_s + 60 * minutes or idle is None:
                fleet.go_on()
                use.look()
                if idle is None and operated.is_idle():
                    idle = use.idle_core_share(idle_s)
                if idle is None and time.monotonic() > began_s + 60 * minutes + WITHIN_S:
                    raise TimeoutError("no background task has ended")
                time.sleep(LOOK_S)
            installation.until(lambda: not fleet.untrusted(), "forecasts are trusted", WITHIN_S)
            ran, on, took_s = operated.ran(), operated.metrics(), time.monotonic() - began_s
        with fleet.operator() as successor:
            installation.until(lambda: "tonnage_leader 1.0" in successor.metrics(), "the other one leads", WITHIN_S)
            installation.until(lambda: not fleet.untrusted(), "its forecasts are trusted", WITHIN_S)
            again = successor.ran()
    return {
        "minutes": round(took_s / 60, 1),
        "policies": len(SERVICES),
        "ran": ran,
        "ray_processes": dict(use.programs),
        "most_pss_mb": round(use.most_pss_mb),
        "idle_core_share": round(idle or 0.0, 4),
        "cpu_s": round(sum(use.spent_s.values()), 1),
        "ray_up_share": round(use.up_s / took_s, 3),
        "restarts": sum(
            float(line.split()[-1]) for line in on.splitlines() if line.startswith("tonnage_background_restarts_total{")
        ),
        "new_leader_ran": again,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--days", type=float, default=7.0)
    given = parser.parse_args()
    print(json.dumps(background_hour(given.minutes, given.days), indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
