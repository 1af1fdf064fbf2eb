"""Evidence of the host: kernel messages, NIC counters, devices, and the processes and cgroups of ranks."""

from collections import deque
from pathlib import Path

from health.records.frames import Evidence, Source
from nodeagent.health.host_evidence import DeviceEvidence, KernelLog, NicCounters
from nodeagent.health.processes import NodeProcess, ProcessTable, Ranks
from power.devices.backend import DeviceReading

UID = "0a1b2c3d-1111-2222-3333-444455556666"


def test_a_process_of_this_machine_is_known_with_its_age() -> None:
    import os

    seen = ProcessTable().look(os.getpid())

    assert seen is not None
    assert seen.started_s > 0
    assert seen.state in "RSD"
    assert ProcessTable().look(0) is None


def kernel_log(*lines: str) -> KernelLog:
    waiting = deque(line.encode() for line in lines)
    return KernelLog(lambda: waiting.popleft() if waiting else None)


def test_gpu_errors_are_found_in_the_kernels_log_with_their_device_and_age() -> None:
    log = kernel_log(
        "4,100,90000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.",
        "6,101,95000000,-;usb 1-1: new device",
    )

    (found,) = log.read(100.0)

    assert (found.source, found.code, found.subject, found.age_s) == (Source.KERNEL, "Xid79", "0000:3b:00", 10.0)


def test_messages_that_users_wrote_into_the_log_count_for_nothing() -> None:
    """Facility 1 (user) with priority 4: 12. Processes with CAP_SYSLOG may write to /dev/kmsg."""
    assert not kernel_log("12,100,90000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.").read(100.0)


def test_messages_of_long_ago_no_longer_count() -> None:
    assert not kernel_log("4,1,1000000,-;mce: [Hardware Error]: Machine check events logged").read(1e6)


def nic(sys: Path, name: str, **counters: int) -> None:
    folder = sys / "net" / name
    (folder / "statistics").mkdir(parents=True, exist_ok=True)
    (folder / "device").mkdir(exist_ok=True)
    (folder / "operstate").write_text("up\n")
    for counter, value in counters.items():
        (folder / "statistics" / counter).write_text(f"{value}\n")


def test_a_nic_whose_errors_rise_is_evidence_while_they_do(tmp_path: Path) -> None:
    nics = NicCounters(tmp_path)
    nic(tmp_path, "eth0", rx_crc_errors=1000)
    assert not nics.read(0.0)
    nic(tmp_path, "eth0", rx_crc_errors=1050)

    (found,) = nics.read(5.0)

    assert (found.code, found.subject) == ("NicErrors", "eth0")
    assert not nics.read(40.0)


def test_a_link_that_was_up_and_is_down_is_evidence_and_an_unused_port_is_none(tmp_path: Path) -> None:
    nics = NicCounters(tmp_path)
    for name, state in (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN")):
        port = tmp_path / "infiniband" / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(state)
    assert not nics.read(0.0)
    (tmp_path / "infiniband" / "mlx5_0" / "ports" / "1" / "state").write_text("1: DOWN")

    (found,) = nics.read(5.0)

    assert (found.code, found.subject) == ("LinkDown", "mlx5_0/1")


def test_heat_and_new_memory_errors_of_a_device_are_evidence_and_our_own_cap_is_none() -> None:
    reading = DeviceReading("GPU-1", 0.0, 100.0, 300.0, throttled_by=("power_cap",), uncorrected_errors=2)
    seen = {"GPU-1": reading}
    devices = DeviceEvidence(lambda: seen)
    assert not devices.read(0.0)

    seen["GPU-1"] = DeviceReading("GPU-1", 1.0, 100.0, 300.0, throttled_by=("thermal",), uncorrected_errors=3)

    assert [each.code for each in devices.read(1.0)] == ["ThermalThrottle", "UncorrectedErrors"]


class Table:
    """A table of processes that a test changes."""

    def __init__(self) -> None:
        self.processes: dict[int, NodeProcess] = {}

    def look(self, pid: int) -> NodeProcess | None:
        return self.processes.get(pid)


def codes(found: object) -> list[tuple[str, str, int]]:
    assert isinstance(found, tuple)
    return [(each.code, each.pod, each.rank) for each in found if isinstance(each, Evidence)]


def test_an_ended_process_of_a_rank_is_known_at_the_next_look(tmp_path: Path) -> None:
    table = Table()
    table.processes[7] = NodeProcess(1.0, "R", UID, "/g")
    ranks = Ranks(table, tmp_path)
    ranks.note(UID, 3, 7)
    assert not codes(ranks.read(10.0))

    table.processes[7] = NodeProcess(9.0, "R", UID, "/g")  # the number is another's by now

    assert codes(ranks.read(10.25)) == [("Gone", UID, 3)]


def test_a_stopped_process_is_known_until_it_goes_on(tmp_path: Path) -> None:
    table = Table()
    table.processes[7] = NodeProcess(1.0, "T", UID, "/g")
    ranks = Ranks(table, tmp_path)
    ranks.note(UID, 3, 7)
    assert codes(ranks.read(10.0)) == [("Stopped", UID, 3)]

    table.processes[7] = NodeProcess(1.0, "R", UID, "/g")

    assert not codes(ranks.read(10.25))


def test_a_throttled_cgroup_is_evidence_with_the_speed_that_it_leaves(tmp_path: Path) -> None:
    table = Table()
    table.processes[7] = NodeProcess(1.0, "R", UID, "/g")
    ranks = Ranks(table, tmp_path)
    ranks.note(UID, 3, 7)
    stat = tmp_path / "g" / "cpu.stat"
    stat.parent.mkdir()
    stat.write_text("usage_usec 1000000\nthrottled_usec 0\n")
    ranks.read(10.0)
    stat.write_text("usage_usec 2500000\nthrottled_usec 500000\n")

    (found,) = ranks.read(12.0)

    assert (found.code, found.rank, found.speed_share) == ("Throttled", 3, 0.75)  # 1.5 s of 2.0 s


def test_a_pod_that_claims_many_ranks_takes_no_room_of_others(tmp_path: Path) -> None:
    table = Table()
    table.processes[7] = NodeProcess(1.0, "T", UID, "/g")
    ranks = Ranks(table, tmp_path)
    for number in range(1000):
        ranks.note(UID, number, 7)
    ranks.note("another", 0, 7)

    found = ranks.read(10.0)

    assert len([each for each in found if each.pod == UID]) == 16
    assert len([each for each in found if each.pod == "another"]) == 1
