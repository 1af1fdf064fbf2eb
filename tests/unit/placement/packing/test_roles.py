"""Members of one role do not stand in for those of another."""

from cluster.actions import Bind
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, GangRole
from controller.deciders.closing import half_started
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world

CPU = tuple(f"cpu-{n}" for n in range(6))
GPU = ("gpu-0", "gpu-1")
RAY = Gang("ray", 3, roles=(GangRole("cpu", 1, CPU), GangRole("gpu", 2, GPU)))


def started(seen: Snapshot) -> list[str]:
    plan = guard(seen, pack(seen, Packer(seen, BestFit())), Limits())
    return sorted(action.pod for action in plan.actions if isinstance(action, Bind))


def members(*, on: str | None = None) -> list[Pod]:
    """Six pods for CPUs, which run where `on` says, and two for a GPU each, which wait."""
    return [
        *(pod(name, 0, cpu_milli=1_000, gang="ray", on=on) for name in CPU),
        *(pod(name, 1, cpu_milli=1_000, gang="ray") for name in GPU),
    ]


def test_workers_of_one_group_do_not_start_without_the_least_of_another() -> None:
    assert started(world([node("a", 1, cpu_milli=64_000)], members(), [RAY])) == []
    assert started(world([node("a", 2, cpu_milli=64_000)], members(), [RAY])) == sorted((*CPU, *GPU))


def test_members_that_a_role_needs_come_before_those_that_could_be_spared() -> None:
    # Three cores: one pod of the CPU group and the two with GPUs, although six are enough for a count of three.
    assert started(world([node("a", 2, cpu_milli=3_000)], members(), [RAY])) == ["cpu-0", *GPU]


def test_a_gang_that_runs_without_one_of_its_roles_is_half_started() -> None:
    seen = world([node("a", 1, cpu_milli=64_000)], members(on="a"), [RAY])

    assert list(half_started(seen)) == ["ray"]
    assert started(seen) == []


def test_a_role_is_completed_as_a_whole() -> None:
    assert started(world([node("a", 2, cpu_milli=64_000)], members(on="a"), [RAY])) == list(GPU)
