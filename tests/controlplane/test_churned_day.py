"""A day of churn on a real API server, played in minutes, once without moves and once with: what waits, what idles.

The replicas of a service follow the load of a day and leave holes wherever they were; jobs of several GPUs come and go
beside them. Load, jobs and their stays are those of published traces where these are, and otherwise made like them.
"""

import csv
import math
import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod, pod_spec
from tests.controlplane.operators import ROOT, OperatorProcess, create_all, operator, until
from tests.controlplane.servers import StartServer, server_of_l4
from tests.controlplane.test_moves import PODS

COUNT, PER_NODE, STEPS, STEP_H = 20, 8, 12, 2
"""Nodes, GPUs of each, and how often the demand changes in the day, after so many hours."""
PEAK, STRANGERS = 140, 2
"""Replicas at the highest load, and pods of another scheduler; jobs ask for the rest of the fleet."""
USD = 0.80
"""Price of a GPU for an hour. Chosen: an L4 in a public cloud."""
REST_CYCLES = 3
"""Cycles without a change after which a step is over."""
MOVABLE = {"tonnage.dev/movable": "true"}
TONNAGE = {"schedulerName": "tonnage", "terminationGracePeriodSeconds": 1}


@dataclass(frozen=True)
class Job:
    """A pod of several GPUs that nobody would create anew, and the steps at whose beginning it comes and goes."""

    gpus: int
    comes: int
    goes: int


@dataclass(frozen=True)
class Demand:
    """What is asked for in each step, beside the strangers' devices."""

    replicas: tuple[int, ...]
    jobs: tuple[Job, ...]

    @property
    def least_waiting(self) -> int:
        """GPU hours of what is asked for beyond the fleet, which wait wherever the others run."""
        of_jobs = [sum(each.gpus for each in self.jobs if each.comes <= step < each.goes) for step in range(STEPS)]
        asked = (STRANGERS + small + wide for small, wide in zip(self.replicas, of_jobs, strict=True))
        return STEP_H * sum(max(0, each - COUNT * PER_NODE) for each in asked)


def demand_of_a_day(data: Path) -> Demand:
    load, kinds = traced(data) if data.is_dir() else generated()
    rng, jobs = random.Random(1), list[Job]()  # noqa: S311
    replicas = tuple(round(PEAK * each / max(load)) for each in load)
    for step in range(STEPS):
        left = COUNT * PER_NODE - replicas[step] - sum(each.gpus for each in jobs if step < each.goes)
        while left > 0:
            gpus, stay_h = rng.choice(kinds)
            if gpus > left:
                break
            jobs.append(Job(gpus, step, step + min(STEPS, max(1, math.ceil(stay_h / STEP_H)))))
            left -= gpus
    return Demand(replicas, tuple(jobs))


def traced(data: Path) -> tuple[list[float], list[tuple[int, float]]]:
    """Requests of each step of a day (ServeGen, m-large), and GPUs and hours of jobs of several GPUs (openb)."""
    with (data / "demand" / "servegen_m-large_600s.csv").open(encoding="utf-8") as file:
        requests = [float(row["requests"] or 0) for row in csv.DictReader(file)]
    with (data / "openb" / "openb_pod_list_default.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"]) > 1]
    stays_h = [(float(row["deletion_time"]) - float(row["creation_time"])) / 3600 for row in rows]
    each = 6 * STEP_H
    load = [sum(requests[each * step : each * (step + 1)]) for step in range(STEPS)]
    return load, [(int(row["num_gpu"]), stay_h) for row, stay_h in zip(rows, stays_h, strict=True)]


def generated() -> tuple[list[float], list[tuple[int, float]]]:
    """The same by the figures of the traces: a day with one peak, and stays of which a few are very long."""
    rng = random.Random(2)  # noqa: S311
    load = [1.0 + 0.5 * math.sin(math.tau * step / STEPS) + rng.uniform(-0.3, 0.3) for step in range(STEPS)]
    return load, [(rng.choice((2, 4, 8, 8, 8)), rng.lognormvariate(-1.5, 2.3)) for _ in range(75)]


@dataclass
class Day:
    """What was seen of a day. GPU hours, node hours, and pods."""

    waited: int = 0
    idle: int = 0
    empty_nodes: int = 0
    moved: int = 0
    most_movable: int = 0
    """Replicas that were asked for at most."""
    disturbed: list[str] = field(default_factory=list)
    """Pods that nobody may move and that are not where they were."""

    def __str__(self) -> str:
        return (
            f"{self.waited} GPU h waited, {self.idle} idle (${USD * self.idle:.0f}), {self.empty_nodes} node h empty, "
            f"{self.moved} of {self.most_movable} pods moved"
        )


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    return server_of_l4(start_server, tmp_path_factory.mktemp("fleet"), COUNT)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    made = Kubectl(programs["kubectl"], server.kubeconfig)
    made("apply", "-f", str(ROOT / "deploy" / "crds"))
    made("create", "namespace", "tonnage-system")
    return made


def replica_set(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": MOVABLE}, "spec": pod_spec(gpus=1, **spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def gpus_of(each: dict[str, Any]) -> int:
    return int(each["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


Seats = dict[tuple[str, str], str]
"""Node of each pod by its name and uid; no node: it waits."""


def seats(pods: list[dict[str, Any]]) -> Seats:
    return {(each["metadata"]["name"], each["metadata"]["uid"]): each["spec"].get("nodeName", "") for each in pods}


def is_service(name: str) -> bool:
    return name.startswith("small-")


def are(kubectl: Kubectl, replicas: int) -> bool:
    """Whether the service has so many pods, those that end among them."""
    return sum(is_service(name) for name, _ in seats(kubectl.get("pods")["items"])) == replicas


def at_rest(kubectl: Kubectl, running: OperatorProcess, replicas: int) -> list[dict[str, Any]]:
    """All pods, once none ends, each replica is there, and the operator has changed nothing for some cycles."""
    seen, since, pods = Seats(), 0.0, list[dict[str, Any]]()

    def rests() -> bool:
        nonlocal seen, since, pods
        cycles = sum(running.counted("tonnage_cycles_total").values())
        pods = kubectl.get("pods")["items"]
        changes = any(each["metadata"].get("deletionTimestamp") for each in pods)
        now = seats(pods)
        if now != seen or changes or sum(is_service(name) for name, _ in now) != replicas:
            seen, since = now, cycles
        return cycles >= since + REST_CYCLES

    until(rests, "the operator has done what it can")
    return pods


def played(server: ControlPlane, kubectl: Kubectl, folder: Path, demand: Demand, **settings: Any) -> Day:
    """The day of one operator, whose limit of moves in an hour therefore bounds those of the whole day."""
    folder.mkdir()
    day, last, before = Day(), Seats(), 0
    with operator(server.kubeconfig, folder, pools=[{"placer": "bind"}], interval_s=0.5, **settings) as running:
        kubectl("create", "-f", "-", stdin=replica_set("small", 0, **TONNAGE))
        kubectl("create", "-f", "-", stdin=replica_set("strange", STRANGERS))
        until(lambda: sum(map(bool, seats(kubectl.get("pods")["items"]).values())) == STRANGERS, "they run")
        for step, replicas in enumerate(demand.replicas):
            over = {f"job-{number}" for number, each in enumerate(demand.jobs) if each.goes == step}
            kubectl("scale", "replicaset", "small", f"--replicas={min(before, replicas)}")
            if over:
                kubectl("delete", "pods", *over)
            until(partial(are, kubectl, min(before, replicas)), "those that go have gone")
            kubectl("scale", "replicaset", "small", f"--replicas={replicas}")
            jobs = [(f"job-{n}", each.gpus) for n, each in enumerate(demand.jobs) if each.comes == step]
            create_all(server.kubeconfig, PODS, [pod(n, gpus=g, annotations=MOVABLE, **TONNAGE) for n, g in jobs])
            pods = at_rest(kubectl, running, replicas)

            now, held = seats(pods), sum(gpus_of(each) for each in pods if each["spec"].get("nodeName"))
            day.waited += STEP_H * (sum(map(gpus_of, pods)) - held)
            day.idle += STEP_H * (COUNT * PER_NODE - held)
            day.empty_nodes += STEP_H * (COUNT - len(set(now.values()) - {""}))
            day.moved += sum(is_service(name) for name, _ in now.keys() - last) - max(0, replicas - before)
            day.most_movable = max(day.most_movable, replicas)
            stay = {key for key, node in last.items() if node and not is_service(key[0]) and key[0] not in over}
            day.disturbed += sorted(name for name, uid in stay if now.get((name, uid)) != last[name, uid])
            last, before = now, replicas
        found: Any = audit(kubectl)
        assert found.is_clean, found
    kubectl("delete", "replicasets", "--all")
    kubectl("delete", "pods", "--all")
    until(lambda: kubectl.get("pods")["items"] == [], "the fleet is empty")
    return day


def test_moves_run_more_of_what_waits_in_a_day_of_churn_within_their_limit_and_disturb_nobody_else(
    server: ControlPlane, kubectl: Kubectl, data_folder: Path, tmp_path: Path
) -> None:
    demand = demand_of_a_day(data_folder)
    without = played(server, kubectl, tmp_path / "without", demand, make_room=False)
    moving = played(server, kubectl, tmp_path / "moving", demand)
    print(f"without moves: {without}\nwith moves: {moving}\nleast: {demand.least_waiting} GPU h waited")  # noqa: T201
    assert without.waited > 0, "the day fragments the fleet"
    assert without.moved == 0
    assert 0 < moving.moved <= moving.most_movable // 4, "a quarter of a namespace within an hour"
    assert demand.least_waiting <= moving.waited < without.waited
    assert moving.idle < without.idle
    assert (without.disturbed, moving.disturbed) == ([], [])
