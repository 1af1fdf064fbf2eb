"""One cycle builds one snapshot of the objects, and another one only where an object has changed meanwhile."""

from cluster.actions import Bind
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.api.gpu_type import KIND as GPU_TYPE
from controller.api.labels import PLACED_AT_ANNOTATION
from controller.api.notation import rfc3339
from controller.cycle import run_cycle
from controller.guard import Limits
from controller.kube.cache import Cache
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gpu_type, node, pod
from tests.unit.controller.kube.fake_cluster_view import kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter


class Counted:
    """A cluster of one node and one pod that waits, and the number of snapshots that were built of it."""

    def __init__(self) -> None:
        self.built = 0
        self.live = LiveCluster(
            [gpu_type(), node(), pod("waits", 1, schedulerName="tonnage")], facts=((GPU_TYPE, self.count),)
        )
        self.writer = FakeWriter()
        self.world = kubernetes(CachedView(self.live.observer, Cache(DEPLOYMENTS)), self.writer, self.live.clock)

    def count(self, snapshot: Snapshot, _: object) -> Snapshot:
        self.built += 1
        return snapshot

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        step = Step(Bind(snapshot.pods.names[0], snapshot.nodes.names[0], (0,)), Reason("LeastCost", ""))
        return Plan(phases=(Phase("start", (step,)),))


def test_a_cycle_that_binds_a_pod_builds_one_snapshot() -> None:
    counted = Counted()

    cycle = run_cycle(counted.world, counted, Limits(), 1.0)

    assert len(cycle.outcome.done) == 1
    assert counted.built == 1
    run_cycle(counted.world, counted, Limits(), 1.0)
    assert counted.built == 2


def test_what_changed_since_the_plan_is_seen_before_it_is_written() -> None:
    counted = Counted()
    plan = counted.plan(counted.world.observe(), 1.0)

    counted.live.remove(pod("waits", 1, schedulerName="tonnage"))
    (error,) = counted.world.apply(plan.actions)

    assert "does not exist" in str(error)
    assert counted.built == 2


def test_what_is_written_is_dated_when_it_is_written_and_not_when_its_plan_began() -> None:
    counted = Counted()
    plan = counted.plan(counted.world.observe(), 1.0)

    counted.live.clock.now_s += 8.0  # a long plan, in which no object changes
    counted.world.apply(plan.actions)

    (binding,) = counted.writer.sent
    assert binding.body is not None
    assert binding.body["metadata"]["annotations"][PLACED_AT_ANNOTATION] == rfc3339(counted.live.clock())
    assert counted.built == 1
