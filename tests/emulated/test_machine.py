"""What User-Mode Linux cannot show of a kernel: pressure information, two CPUs, cpusets."""

from tests.emulated.in_machine import SPIN_S
from tests.kernel.test_enforcer import agent, run_of
from tests.rigs.kernel.guest import Guest
from tests.rigs.sandboxes.runs import as_json

MACHINE = "tests.emulated.in_machine"


def test_the_machine_has_two_cpus_cpusets_and_pressure_and_allows_all_of_isolation(machine: Guest) -> None:
    about = machine.call(f"{MACHINE}:about")

    assert about["cpus"] == 2
    assert about["controllers"] == ["cpuset", "cpu", "io", "memory", "pids"]
    assert about["capability"] == {"level": "full", "reason": "cgroup v2, writable"}


def test_cpu_weights_count_where_both_cpus_are_wanted_by_both(machine: Guest) -> None:
    heavy, light = machine.call(f"{MACHINE}:shares_of_cpu", [1000, 100], 2)

    assert heavy > 2 * light  # ten times, by the weights; a busy machine blurs it


def test_cpu_weights_take_nothing_where_each_has_a_cpu(machine: Guest) -> None:
    heavy, light = machine.call(f"{MACHINE}:shares_of_cpu", [1000, 100], 1)

    assert light > heavy / 4


def test_groups_confined_to_one_cpu_share_it(machine: Guest) -> None:
    both = machine.call(f"{MACHINE}:shares_of_cpu", [100, 100], 1, "1")

    assert sum(both) < 1.5 * SPIN_S  # of one CPU, and not of both
    assert min(both) > max(both) / 4


def test_a_call_on_two_cpus_stops_at_a_freeze_and_is_gone_after_a_kill(machine: Guest) -> None:
    stopped = machine.call(f"{MACHINE}:stopped_on_two_cpus")

    assert stopped["used_s"] < 0.1  # of the second that two CPUs have in half a one
    assert stopped["frozen_s"] < 10 > stopped["killed_s"]


def test_a_killer_by_pressure_ends_a_sandbox_before_the_kernel_does(machine: Guest) -> None:
    # Both together want 2 x (40 + 150) MiB of 250: they are braked at 0.95 of that, which is pressure.
    run = run_of("pressure-brake", agent("a", 150.0), agent("b", 150.0), budget_mib=250.0)

    result = machine.call("tests.rigs.sandboxes.replay:run_in_guest", as_json(run))

    assert result["reasons"]["PRESSURE"] >= 1
    assert not all(one["survived"] for one in result["agents"])
