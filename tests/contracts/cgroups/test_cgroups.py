"""What isolation relies on in the kernel's cgroups, and what the fake must do alike."""

import errno

import pytest

from isolation.tree import SandboxTree
from tests.contracts.cgroups.stage import MIB, Stage

SLACK_BYTES = 4 * MIB
"""What the kernel charges beyond a brake, and for a process by itself."""


def refuses(code: int) -> pytest.RaisesExc[OSError]:
    return pytest.RaisesExc(OSError, check=lambda error: error.errno == code)


def eventually(claim: object) -> bool:
    """Whether the claim comes true within 100 looks; a look into the guest takes tens of milliseconds."""
    return any(claim() for _ in range(100))  # type: ignore[operator]


@pytest.fixture
def tree(cgroups: Stage) -> SandboxTree:
    tree = SandboxTree(cgroups)
    tree.prepare()
    tree.add_sandbox("s")
    return tree


def test_a_new_group_has_no_limits_and_nothing_in_it(cgroups: Stage) -> None:
    cgroups.make("g")

    read = {file: cgroups.read("g", file).strip() for file in ("memory.max", "memory.high", "pids.max", "cpu.weight")}
    assert read == {"memory.max": "max", "memory.high": "max", "pids.max": "max", "cpu.weight": "100"}
    assert cgroups.read("g", "cgroup.events") == "populated 0\nfrozen 0\n"
    assert cgroups.read("g", "memory.oom.group").strip() == "0"


def test_a_group_exists_once(cgroups: Stage) -> None:
    cgroups.make("g")
    with refuses(errno.EEXIST):
        cgroups.make("g")
    with refuses(errno.ENOENT):
        cgroups.make("missing/g")
    assert "g" in cgroups.children("")


def test_limits_exist_only_where_the_parent_delegates_the_controller(cgroups: Stage) -> None:
    cgroups.make("g")
    cgroups.make("g/child")
    with refuses(errno.ENOENT):
        cgroups.read("g/child", "memory.max")

    cgroups.write("g", "cgroup.subtree_control", "+memory")

    assert cgroups.read("g/child", "memory.max").strip() == "max"
    assert cgroups.read("g/child", "cgroup.controllers").strip() == "memory"


def test_a_group_with_processes_cannot_delegate_and_one_that_delegates_takes_no_process(cgroups: Stage) -> None:
    cgroups.make("g")
    cgroups.start("g")
    with refuses(errno.EBUSY):
        cgroups.write("g", "cgroup.subtree_control", "+memory")

    cgroups.make("h")
    cgroups.write("h", "cgroup.subtree_control", "+memory")
    with refuses(errno.EBUSY):
        cgroups.start("h")


@pytest.mark.parametrize(
    ("file", "value", "code"),
    [
        ("memory.max", "-1", errno.EINVAL),
        ("memory.max", "NaN", errno.EINVAL),
        ("memory.high", "12x", errno.EINVAL),
        ("cpu.weight", "0", errno.ERANGE),
        ("cpu.weight", "10001", errno.ERANGE),
        ("cgroup.freeze", "2", errno.ERANGE),
        ("cgroup.kill", "0", errno.ERANGE),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(cgroups: Stage, file: str, value: str, code: int) -> None:
    cgroups.make("g")
    with refuses(code):
        cgroups.write("g", file, value)


def test_a_memory_limit_is_whole_pages(cgroups: Stage) -> None:
    cgroups.make("g")
    cgroups.write("g", "memory.high", str(MIB + 1))
    assert cgroups.read("g", "memory.high").strip() == str(MIB)


def test_a_process_starts_inside_its_group_and_keeps_it_from_being_removed(cgroups: Stage) -> None:
    cgroups.make("g")
    pid = cgroups.start("g")

    assert cgroups.read("g", "cgroup.procs").split() == [str(pid)]
    assert "populated 1" in cgroups.read("g", "cgroup.events")
    with refuses(errno.EBUSY):
        cgroups.remove("g")


def test_memory_counts_in_the_group_and_above_it(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 512 * MIB)
    pid = cgroups.start(group)

    cgroups.allocate(pid, 40 * MIB)

    assert 40 * MIB <= tree.used_bytes(group) <= 40 * MIB + SLACK_BYTES
    assert tree.used_bytes("s") >= 40 * MIB
    assert tree.peak_bytes(group) >= 40 * MIB


def test_the_brake_holds_a_call_at_its_lease_without_killing_it(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 32 * MIB)
    pid = cgroups.start(group)

    cgroups.allocate(pid, 64 * MIB)

    assert tree.used_bytes(group) <= 32 * MIB + SLACK_BYTES
    events = tree.events(group)
    assert events.high > 0
    assert events.oom_kill == 0
    assert cgroups.is_alive(pid)


def test_a_larger_lease_lets_the_call_go_on(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 32 * MIB)
    pid = cgroups.start(group)
    cgroups.allocate(pid, 48 * MIB)

    tree.set_lease("s", "a", 96 * MIB)

    assert eventually(lambda: tree.used_bytes(group) >= 48 * MIB)


def test_the_wall_behind_the_brake_kills_the_whole_call_and_counts_it(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 512 * MIB, max_bytes=32 * MIB)
    first, second = cgroups.start(group), cgroups.start(group)

    cgroups.allocate(first, 64 * MIB)

    assert eventually(lambda: not cgroups.is_alive(first) and not cgroups.is_alive(second))
    assert tree.events(group).oom_kill >= 1
    assert tree.events(group).oom_group_kill == 1
    assert eventually(lambda: not tree.is_populated(tree.call_group("s", "a")))


def test_the_agent_lives_on_when_its_call_hits_the_wall(tree: SandboxTree, cgroups: Stage) -> None:
    agent = cgroups.start(tree.agent_group("s"))
    call = cgroups.start(tree.add_call("s", "a", 512 * MIB, max_bytes=32 * MIB))

    cgroups.allocate(call, 64 * MIB)

    assert eventually(lambda: not cgroups.is_alive(call))
    assert cgroups.is_alive(agent)
    assert tree.events(tree.agent_group("s")).oom_kill == 0


def test_a_frozen_call_does_not_grow_until_it_is_thawed(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 512 * MIB)
    pid = cgroups.start(group)
    tree.freeze("s", "a")
    assert eventually(lambda: "frozen 1" in cgroups.read(group, "cgroup.events"))

    cgroups.allocate(pid, 32 * MIB)
    assert tree.used_bytes(group) <= SLACK_BYTES

    tree.thaw("s", "a")
    assert eventually(lambda: tree.used_bytes(group) >= 32 * MIB)


def test_a_frozen_call_can_be_killed_and_its_memory_comes_back(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 512 * MIB)
    pid = cgroups.start(group)
    cgroups.allocate(pid, 32 * MIB)
    tree.freeze("s", "a")

    tree.kill("s", "a")

    assert eventually(lambda: not tree.is_populated(tree.call_group("s", "a")))
    assert not cgroups.is_alive(pid)
    assert tree.events(group).oom_kill == 0  # not taken for the kernel's own kill


def test_a_call_that_ended_can_be_removed(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 512 * MIB)
    cgroups.start(group)
    tree.kill("s", "a")
    assert eventually(lambda: not tree.is_populated(tree.call_group("s", "a")))

    def removed() -> bool:
        try:
            tree.remove_call("s", "a")
        except OSError as error:  # until the last process is reaped
            return error.errno != errno.EBUSY
        return True

    assert eventually(removed)
    assert cgroups.children("s") == ("agent", "light")


def test_a_call_starts_no_more_processes_than_its_limit(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 512 * MIB, pids=2)
    cgroups.start(group)
    cgroups.start(group)
    with refuses(errno.EAGAIN):
        cgroups.start(group)


def test_a_restart_finds_the_calls_and_thaws_them(tree: SandboxTree, cgroups: Stage) -> None:
    for name in ("a", "b"):
        cgroups.start(tree.add_call("s", name, 64 * MIB))
    tree.freeze("s", "b")

    restarted = SandboxTree(cgroups)
    groups = [restarted.call_group("s", call) for call in restarted.calls_of("s")]
    assert groups == ["s/call-a", "s/call-b"]
    assert [restarted.limit_bytes(group, "memory.high") for group in groups] == [64 * MIB, 64 * MIB]
    assert [restarted.is_populated(group) for group in groups] == [True, True]
    assert [cgroups.read(group, "cgroup.freeze").strip() for group in groups] == ["0", "1"]

    restarted.thaw("s", "b")
    assert eventually(lambda: "frozen 0" in cgroups.read(tree.call_group("s", "b"), "cgroup.events"))


def test_a_container_is_adopted_with_its_processes_in_the_agents_leaf(cgroups: Stage) -> None:
    for group in ("pods", "pods/container"):
        cgroups.make(group)
        if group == "pods":
            cgroups.write(group, "cgroup.subtree_control", "+cpu +io +memory +pids")
    inside = {cgroups.start("pods/container") for _ in range(3)}
    tree = SandboxTree(cgroups)

    for _ in range(2):  # as after a restart
        tree.adopt("uid", "pods/container")

    assert len(tree.pids("pods/container/agent")) == len(inside)
    assert tree.pids("pods/container") == ()
    assert eventually(lambda: "frozen 0" in cgroups.read("pods/container", "cgroup.events"))


def test_a_container_with_cgroups_of_its_own_is_refused_with_the_reason(cgroups: Stage) -> None:
    cgroups.make("container")
    cgroups.make("container/empty")
    SandboxTree(cgroups).adopt("uid", "container")
    cgroups.make("container/init.scope")
    cgroups.start("container/init.scope")

    with pytest.raises(OSError, match=r"such as init\.scope"):
        SandboxTree(cgroups).adopt("uid", "container")

    assert "frozen 0" in cgroups.read("container", "cgroup.events")


class StuckStage:
    """A container in which new processes are listed however many were moved."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.reads = stage, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.stage, name)

    def read(self, group: str, file: str) -> str:
        if file == "cgroup.procs" and group == "container":
            self.reads += 1
            return "0\n"
        return self.stage.read(group, file)


def test_an_adoption_ends_whatever_the_processes_do(cgroups: Stage) -> None:
    cgroups.make("container")
    stuck = StuckStage(cgroups)

    with pytest.raises(OSError, match="1 of its processes cannot be moved"):
        SandboxTree(stuck).adopt("uid", "container")  # type: ignore[arg-type]

    assert stuck.reads < 20
    assert eventually(lambda: "frozen 0" in cgroups.read("container", "cgroup.events"))


def test_a_released_container_has_no_limits_and_nothing_frozen(cgroups: Stage) -> None:
    cgroups.make("container")
    tree = SandboxTree(cgroups)
    tree.adopt("uid", "container")
    group = tree.add_call("uid", "a", 64 * MIB, max_bytes=128 * MIB)
    cgroups.start(group)
    tree.freeze("uid", "a")
    tree.set_agent_lease("uid", 64 * MIB)

    tree.release("uid")

    left = {
        cgroups.read(each, file).strip()
        for each in (group, "container/agent")
        for file in ("memory.high", "memory.max")
    }
    assert left == {"max"}
    assert eventually(lambda: "frozen 0" in cgroups.read(group, "cgroup.events"))


def test_a_process_is_attached_to_a_leaf(tree: SandboxTree, cgroups: Stage) -> None:
    group = tree.add_call("s", "a", 64 * MIB)
    pid = cgroups.start(tree.agent_group("s"))

    tree.attach(group, pid)

    assert len(tree.pids(group)) == 1
    assert tree.pids(tree.agent_group("s")) == ()
