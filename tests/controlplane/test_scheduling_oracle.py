"""Where Tonnage lets pods run, beside the filters of the real kube-scheduler: `python -m tests.controlplane.oracle`."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import Folder
from simulator.controlplane.server import down
from tests.builders.scheduling_situations import NAMESPACE, SITUATIONS, Object, Situation
from tests.controlplane.oracle.comparison import Comparison
from tests.controlplane.oracle.joint import Joint, check_plan
from tests.controlplane.oracle.kube_filters import KubeFilters, Verdict, kube_filters
from tests.controlplane.oracle.random_clusters import RandomCluster, random_cluster
from tests.controlplane.oracle.random_pods import RandomPod
from tests.controlplane.oracle.random_volumes import Volumes

pytestmark = pytest.mark.controlplane

SEEDS = range(1000, 1020)
JOINT_SEEDS = range(2000, 2010)


@dataclass(frozen=True, slots=True)
class Oracle:
    """kube-scheduler with the event loop that its connection belongs to."""

    runner: asyncio.Runner
    filters: KubeFilters


@pytest.fixture(scope="module")
def oracle(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """A server of the module's own."""
    folder: Path = tmp_path_factory.mktemp("oracle")
    server = Folder(folder / "server")
    try:
        with asyncio.Runner() as runner:
            context = kube_filters(server, programs)
            filters = runner.run(context.__aenter__())
            try:
                yield Oracle(runner, filters)
            finally:
                runner.run(context.__aexit__(None, None, None))
    finally:
        down(server, delete=True)


def test_no_pod_is_allowed_where_kube_scheduler_refuses_it_and_hardly_one_refused_where_it_does_not(
    oracle: Oracle,
) -> None:
    comparison = Comparison()
    for seed in SEEDS:
        comparison.add(oracle.runner.run(oracle.filters.judge(random_cluster(seed))))
    assert comparison.holds, (comparison.table(), comparison.differences)


def test_pods_that_are_planned_together_may_run_together(oracle: Oracle) -> None:
    joint = Joint()
    for seed in JOINT_SEEDS:
        oracle.runner.run(check_plan(oracle.filters, random_cluster(seed), joint))
    assert joint.placed
    assert not joint.wrong


def test_the_situations_of_the_unit_tests_are_as_kube_scheduler_sees_them(oracle: Oracle) -> None:
    wrong = []
    for situation in SITUATIONS:
        verdict = oracle.runner.run(verdict_on(oracle.filters, situation))
        if "".join(sorted(verdict.allowed)) != situation.allowed:
            wrong.append((situation.rule, situation.allowed, verdict))
    assert not wrong


async def verdict_on(filters: KubeFilters, situation: Situation) -> Verdict:
    """kube-scheduler's verdict on the pod that waits."""
    nothing = Volumes((), (), (), (), {})
    running = tuple(_running(each) for each in situation.running)
    namespaces = {name: situation.namespaces.get(name, {}) for name in random_cluster(0).namespaces}
    await filters.make(RandomCluster(0, namespaces, tuple(situation.nodes), nothing, running, ()))
    verdict = await filters.verdict(RandomPod(situation.pod, ()))
    await filters.clear()
    assert situation.pod["metadata"]["namespace"] == NAMESPACE
    return verdict


def _running(pod: Object) -> RandomPod:
    """The pod as it is created; what only the server may write follows."""
    meta = {key: value for key, value in pod["metadata"].items() if key != "deletionTimestamp"}
    made = RandomPod({**pod, "metadata": meta}, (), pod.get("status", {}))
    return replace(made, is_ending=True) if "deletionTimestamp" in pod["metadata"] else made
