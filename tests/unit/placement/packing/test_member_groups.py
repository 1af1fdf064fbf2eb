"""Members of one role do not stand in for those of another."""

from cluster.actions import Bind
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, MemberGroup
from controller.deciders.closing import half_started
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world

CPU = tuple(f"cpu-{n}" for n in range(6))
GPU = ("gpu-0", "gpu-1")
RAY = Gang("ray", 3, groups=(MemberGroup("cpu", 1, CPU), MemberGroup("gpu", 2, GPU)))


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


def group(name: str, least: int, count: int) -> MemberGroup:
    return MemberGroup(name, least, tuple(f"{name}-{n}" for n in range(count)))


REPLICAS = Gang(
    "pools",
    4,
    groups=(
        group("router", 1, 1),
        MemberGroup("pools", 3, groups=tuple(group(f"pool{n}", 3, 3) for n in range(3)), least_groups=1),
    ),
)
"""A router, and one of three pools of three at least."""


def test_a_group_counts_its_groups_that_are_whole() -> None:
    """Two members of each of three pools are six, of which none is whole; one more completes one."""
    scattered = [f"pool{n}-{m}" for n in range(3) for m in range(2)]

    assert REPLICAS.lacks(["router-0", *scattered]) == 1
    assert REPLICAS.lacks(["router-0", "pool1-0", "pool1-1", "pool1-2"]) == 0
    assert REPLICAS.lacks(["pool0-0", "pool1-0", "pool1-1", "pool1-2"]) == 1
    assert REPLICAS.lacks([]) == 4


def test_members_of_a_group_that_can_be_completed_come_first() -> None:
    """Pool 0 has one member fewer than it needs: pool 1, which is whole with two that wait, goes before it."""
    waiting = ["pool0-0", "pool0-1", "pool1-1", "pool1-2", "router-0"]

    first = REPLICAS.needed_first(waiting, ["pool1-0"])

    assert first == ["pool1-1", "pool1-2", "router-0", "pool0-0", "pool0-1"]


def test_what_is_missing_is_named_by_role() -> None:
    assert REPLICAS.missing([]) == "1 of router, 3 of pool0"
    assert REPLICAS.missing(["pool2-0", "pool2-1"]) == "1 of router, 1 of pool2"
    assert REPLICAS.missing(["router-0", "pool1-0", "pool1-1", "pool1-2"]) == ""
    assert Gang("plain", 4).missing(["a"]) == "3"


def test_a_gang_waits_for_members_that_do_not_exist_in_these_words() -> None:
    seen = world([node("a", 2, cpu_milli=64_000)], members()[:-1], [RAY])

    (waits,) = pack(seen, Packer(seen, BestFit())).unplaced

    assert (waits.workload, waits.reason.code) == ("Gang/ray", "MembersMissing")
    assert waits.reason.words == "7 members exist, 3 must start together; it waits for 1 of gpu more"
