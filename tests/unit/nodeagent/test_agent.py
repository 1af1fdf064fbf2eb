"""The node agent keeps its devices within a lease, and at their floor without one, whatever else fails."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nodeagent.agent import NodeAgent
from nodeagent.recovery import AgentRules
from nodeagent.state_file import lease_path, read_record
from power.devices.backend import DeviceError, DeviceFacts, DeviceReading
from power.leases.messages import Inventory, Lease, Refusal, Report, decoded, encoded
from tests.clock import HandClock
from tests.fake_devices import FakeDevice, FakeDevices
from tests.node_agents import agent_of
from tests.until import until_async


class RecordingDevices(FakeDevices):
    """Fake devices that remember the limits set on them, in order."""

    def __init__(self, devices: list[FakeDevice], clock: HandClock) -> None:
        super().__init__(devices, clock)
        self.orders: list[tuple[str, float]] = []

    def set_limit(self, uuid: str, limit_w: float) -> float:
        self.orders.append((uuid, limit_w))
        return super().set_limit(uuid, limit_w)


class Node:
    """An agent with its devices, and a controller's pen."""

    def __init__(self, folder: Path, *devices: FakeDevice, life: str = "life-1", boot: str = "boot-1") -> None:
        self.clock = HandClock(1000.0)
        self.devices = RecordingDevices(list(devices), self.clock)
        self.said: list[bytes] = []
        self.sequence = 0
        self.folder = folder
        self.agent = self.made(life, boot)

    def made(self, life: str = "life-2", boot: str = "boot-1") -> NodeAgent:
        return agent_of(
            *("n1", life, boot, self.devices, self.folder / "record", AgentRules(), self.clock),
            self.said.append,
        )

    async def looks(self) -> Report:
        await self.agent.turn(looks=True)
        report = decoded(Report, self.said[-1], "n1")
        assert isinstance(report, Report)
        return report

    async def passes(self, for_s: float) -> Report:
        self.clock.now_s += for_s
        return await self.looks()

    def lease(self, report: Report, caps_w: dict[str, float], **other: Any) -> bytes:
        self.sequence += 1
        about: dict[str, Any] = {
            "node": "n1",
            "life": report.life,
            "echo_s": report.sent_s,
            "for_s": 10.0,
            "epoch": 1,
            "sequence": self.sequence,
            "issued_s": 5.0,
            "caps_w": caps_w,
            "safe_w": dict.fromkeys(caps_w, 250.0),
        }
        return encoded(Lease(**(about | other)))


def lived(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def gpu(uuid: str = "g", **manners: Any) -> FakeDevice:
    return FakeDevice(uuid, obeys_after_s=0.0, **manners)


def test_without_a_lease_devices_are_at_their_floor(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        report = await node.looks()

        # Half of 700 W.
        assert node.devices.orders == [("g", 350.0)]
        assert report.devices["g"].cap_w == 350.0
        assert (report.epoch, report.sequence) == (-1, -1)

    lived(story)


def test_a_lease_holds_until_it_ends_and_then_its_own_floor(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}))
        under = await node.passes(1.0)
        before_end = await node.passes(8.9)
        after_end = await node.passes(0.2)

        assert (under.epoch, under.sequence, under.devices["g"].cap_w) == (1, 1, 600.0)
        assert before_end.devices["g"].cap_w == 600.0
        assert after_end.devices["g"].cap_w == 250.0
        assert node.agent.counts.floors == 1

    lived(story)


def test_the_floor_comes_without_a_look_at_the_devices(tmp_path: Path) -> None:
    """A lease ends at its own time, not at the next period's."""

    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}))
        await node.passes(1.0)
        node.clock.now_s += 9.5

        await node.agent.turn(looks=False)

        assert node.devices.orders[-1] == ("g", 250.0)

    lived(story)


def test_what_must_be_lowered_is_lowered_before_anything_is_raised(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu("a"), gpu("b"))
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"a": 300.0, "b": 600.0}))
        report = await node.passes(1.0)
        node.agent.receive(node.lease(report, {"a": 600.0, "b": 300.0}))
        await node.agent.turn(looks=False)

        assert node.devices.orders[-2:] == [("b", 300.0), ("a", 600.0)]

    lived(story)


def test_nothing_is_raised_while_something_cannot_be_lowered(tmp_path: Path) -> None:
    async def story() -> None:
        broken = gpu("b")
        node = Node(tmp_path, gpu("a"), broken)
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"a": 300.0, "b": 600.0}))
        report = await node.passes(1.0)
        broken.refuses = True
        node.agent.receive(node.lease(report, {"a": 600.0, "b": 300.0}))
        after = await node.passes(1.0)

        assert after.devices["a"].cap_w == 300.0
        assert (after.epoch, after.sequence) == (1, 1)

    lived(story)


@pytest.mark.parametrize("manner", ["stuck", "clamps"])
def test_a_lease_that_a_device_does_not_obey_is_never_reported_in_force(tmp_path: Path, manner: str) -> None:
    async def story() -> None:
        device = gpu()
        node = Node(tmp_path, device)
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}))
        first = await node.passes(1.0)
        device.stuck = manner == "stuck"
        device.clamps_to_w = (400.0, 700.0) if manner == "clamps" else None
        node.agent.receive(node.lease(first, {"g": 300.0}))
        after = await node.passes(1.0)

        assert first.sequence == 1
        assert after.sequence == 1
        assert after.devices["g"].cap_w > 300.0
        assert after.answered_epoch == 1

    lived(story)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"node": "n2"}, "OtherNode"),
        ({"epoch": 0}, "StaleEpoch"),
        ({"sequence": 0}, "Replayed"),
        ({"echo_s": 985.0}, "Expired"),
        ({"life": "another"}, "OtherLife"),
        ({"safe_w": {"g": 650.0}}, "OutOfRange"),
    ],
)
def test_leases_that_are_not_its_controllers_change_nothing(tmp_path: Path, other: dict[str, Any], code: str) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 300.0}))
        report = await node.passes(1.0)
        node.agent.receive(node.lease(report, {"g": 600.0}, **other))
        after = await node.passes(1.0)

        assert node.agent.counts.refused == {code: 1}
        assert after.devices["g"].cap_w == 300.0

    lived(story)


def test_an_agent_that_starts_again_goes_on_under_its_lease(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}))
        await node.passes(1.0)

        node.agent = node.made()
        await node.agent.start()
        report = await node.passes(1.0)

        assert report.life == "life-1"
        assert report.devices["g"].cap_w == 600.0
        assert node.devices.orders[-1] == ("g", 600.0)

    lived(story)


def test_a_machine_that_was_started_anew_has_no_lease(tmp_path: Path) -> None:
    async def story() -> None:
        device = gpu()
        node = Node(tmp_path, device)
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}))
        await node.passes(1.0)

        device.reboot(node.clock.now_s)
        node.agent = node.made(boot="boot-2")
        await node.agent.start()
        report = await node.looks()

        assert report.life == "life-2"
        assert (report.epoch, report.sequence) == (-1, -1)
        assert report.devices["g"].cap_w == 350.0

    lived(story)


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_machine_that_was_started_anew_refuses_the_controller_that_was_replaced_before(
    tmp_path: Path, *, loses_power: bool
) -> None:
    """A loss of power may leave an empty file of the lease, which is not synchronised."""

    async def story() -> None:
        device = gpu()
        node = Node(tmp_path, device)
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}, epoch=2))
        await node.passes(1.0)

        device.reboot(node.clock.now_s)
        if loses_power:
            lease_path(tmp_path / "record").write_bytes(b"")
        node.agent = node.made(boot="boot-2")
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 700.0}, epoch=1))
        report = await node.passes(1.0)
        assert report.devices["g"].cap_w == 350.0

        node.agent.receive(node.lease(report, {"g": 600.0}, epoch=2))
        assert (await node.passes(1.0)).devices["g"].cap_w == 600.0

    lived(story)


def test_an_agent_that_restored_the_limits_obeys_whoever_comes_next(tmp_path: Path) -> None:
    """It left for good: an operator that is installed anew, without the Lease of the former one, begins at epoch 0."""

    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}, epoch=2))
        await node.passes(1.0)
        await node.agent.restore()

        node.agent = node.made()
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}, epoch=0))
        assert (await node.passes(1.0)).devices["g"].cap_w == 600.0

    lived(story)


def test_a_device_that_comes_back_is_taken_up_and_told_to_the_controller(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu("a"), gpu("b"))
        told: list[set[str]] = []
        hidden = {"b"}

        class Returning(RecordingDevices):
            def discover(self) -> tuple[DeviceFacts, ...]:
                return tuple(each for each in super().discover() if each.uuid not in hidden)

            def read(self) -> Mapping[str, DeviceReading | DeviceError]:
                return {uuid: each for uuid, each in super().read().items() if uuid not in hidden}

        def told_now() -> set[str]:
            inventory = decoded(Inventory, node.agent.inventory(), "n1")
            assert isinstance(inventory, Inventory)
            return set(inventory.devices)

        node.devices = Returning([gpu("a"), gpu("b")], node.clock)
        node.agent = agent_of(
            *("n1", "life-1", "boot-1", node.devices, tmp_path / "record", AgentRules(), node.clock),
            *(node.said.append, lambda: None, lambda _: None),
            lambda: told.append(told_now()),
        )
        await node.agent.start()
        first = await node.looks()
        node.agent.receive(node.lease(first, {"a": 600.0}))
        await node.passes(1.0)
        assert told == []

        hidden.clear()
        report = await node.passes(1.0)

        assert told == [{"a", "b"}]
        assert report.life != first.life  # leases for the old session are refused
        assert (report.devices["a"].cap_w, report.devices["b"].cap_w) == (350.0, 350.0)
        node.agent.receive(node.lease(report, {"a": 500.0, "b": 400.0}))
        assert {uuid: each.cap_w for uuid, each in (await node.passes(1.0)).devices.items()} == {"a": 500.0, "b": 400.0}
        assert len(told) == 1

    lived(story)


def test_devices_that_forget_their_limit_are_named_at_the_start(tmp_path: Path) -> None:
    node = Node(tmp_path, FakeDevice("g0", is_persistent=True), FakeDevice("g1", is_persistent=False))

    with capture_logs() as logs:
        asyncio.run(node.agent.start())

    named = [each["devices"] for each in logs if each["event"].startswith("persistence mode is off")]
    assert named == [["g1"]]


def test_without_its_record_an_agent_raises_nothing(tmp_path: Path) -> None:
    """The lower limit may be that of the lease that was lost with the record."""

    async def story() -> None:
        node = Node(tmp_path, gpu())
        node.devices.set_limit("g", 250.0)
        await node.agent.start()
        report = await node.looks()

        assert report.devices["g"].cap_w == 250.0  # the floor would be 350 W

    lived(story)


@pytest.mark.parametrize("cap_w", [350.0, 600.0], ids=["as it is", "higher"])
def test_while_the_disk_takes_no_record_nothing_is_raised_and_no_lease_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap_w: float
) -> None:
    """After a crash, a limit without a record would be taken for the administrator's, and a lease be forgotten."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": cap_w}))
        with monkeypatch.context() as disk:
            disk.setattr("nodeagent.state_file.write_record", full)
            report = await node.passes(1.0)
        assert node.devices.orders == [("g", 350.0)]
        assert (report.epoch, report.sequence) == (-1, -1)

        report = await node.passes(1.0)
        assert (report.epoch, report.sequence) == (1, 1)
        assert node.devices.orders[-1] == ("g", cap_w)

    lived(story)


def test_the_limit_that_was_requested_is_restored_and_not_what_a_bmc_enforced_meanwhile(tmp_path: Path) -> None:
    class HeldByBmc(RecordingDevices):
        def read(self) -> Mapping[str, DeviceReading | DeviceError]:
            found = super().read().items()
            return {
                uuid: replace(each, limit_w=min(each.limit_w or 0.0, 500.0))
                if isinstance(each, DeviceReading)
                else each
                for uuid, each in found
            }

    async def story() -> None:
        node = Node(tmp_path)
        node.devices = HeldByBmc([gpu()], node.clock)
        node.agent = node.made("life-1")
        await node.agent.start()
        await node.looks()
        await node.agent.restore()

        assert node.devices.orders == [("g", 350.0), ("g", 700.0)]

    lived(story)


def test_leaving_restores_what_was_there_before_even_after_a_crash(tmp_path: Path) -> None:
    async def story() -> None:
        device = gpu()
        node = Node(tmp_path, device)
        device.set_limit(500.0, node.clock.now_s)  # by an administrator, before Tonnage
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"g": 600.0}))
        await node.passes(1.0)

        node.agent = node.made()
        await node.agent.start()
        await node.agent.restore()

        assert device.enforced_w(node.clock.now_s) == 500.0

    lived(story)


def test_opted_out_devices_are_reported_and_never_touched(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu("a"), gpu("b"))
        node.agent = agent_of(
            *("n1", "life-1", "boot-1", node.devices, tmp_path / "record", AgentRules(manages=frozenset({"a"}))),
            *(node.clock, node.said.append),
        )
        await node.agent.start()
        report = await node.looks()

        assert {uuid for uuid, _ in node.devices.orders} == {"a"}
        assert set(report.devices) == {"a", "b"}

    lived(story)


def test_devices_of_other_nodes_may_be_among_those_that_may_be_limited(tmp_path: Path) -> None:
    """One list does for a fleet: what is not here means nothing here."""

    async def story() -> None:
        node = Node(tmp_path, gpu("a"), gpu("b"))
        rules = AgentRules(manages=frozenset({"a", "of another node"}))
        node.agent = agent_of(
            *("n1", "life-1", "boot-1", node.devices, tmp_path / "record", rules, node.clock),
            node.said.append,
        )
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {"a": 600.0}))
        await node.passes(1.0)
        await node.agent.restore()

        assert set(node.agent.holder.devices) == {"a"}
        assert {uuid for uuid, _ in node.devices.orders} == {"a"}

    lived(story)


def test_a_device_that_does_not_answer_is_missing_from_the_report(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu("a"), gpu("b", silent_from_s=1005.0))
        await node.agent.start()
        before, after = await node.looks(), await node.passes(6.0)

        assert set(before.devices) == {"a", "b"}
        assert set(after.devices) == {"a"}
        assert node.agent.counts.failed["Silent"] >= 1

    lived(story)


def test_a_report_is_about_its_node_alone(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        await node.looks()

        assert isinstance(decoded(Report, node.said[-1], "n2"), Refusal)

    lived(story)


def test_a_device_bursts_while_it_has_credit_and_its_lease_is_what_is_reported(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu(wants_w=lambda now_s: 100.0 if now_s < 1400.0 else 650.0))
        await node.agent.start()
        report = await node.looks()
        for _ in range(400):  # drawing 100 W under a lease of 400 W earns credit, at most the whole in 300 s
            node.agent.receive(node.lease(report, {"g": 400.0}, burst_j={"g": 500.0}))
            report = await node.passes(1.0)
        bursting_w = node.devices.orders[-1][1]
        for _ in range(5):  # 250 W above the lease spend 500 J in two seconds
            node.agent.receive(node.lease(report, {"g": 400.0}, burst_j={"g": 500.0}))
            report = await node.passes(1.0)

        assert bursting_w == 700.0
        assert node.devices.orders[-1][1] == 400.0
        assert report.devices["g"].cap_w == 400.0

    lived(story)


def test_who_outlives_the_agent_is_told_its_leases_before_a_device_bursts(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu(wants_w=lambda _: 100.0))
        told: list[tuple[Mapping[str, float], int]] = []
        node.agent = agent_of(
            *("n1", "life-1", "boot-1", node.devices, tmp_path / "record", AgentRules(), node.clock),
            *(node.said.append, lambda: None),
            lambda leave_w: told.append((leave_w, len(node.devices.orders))),
        )
        await node.agent.start()
        report = await node.looks()
        for _ in range(2):
            node.agent.receive(node.lease(report, {"g": 400.0}, burst_j={"g": 500.0}, credit_back_s=1.0))
            report = await node.passes(1.0)
        await node.agent.end_bursts()

        assert [limit_w for _, limit_w in node.devices.orders] == [350.0, 700.0, 400.0]
        assert ({"g": 400.0}, 1) in told  # before the second order

    lived(story)


def test_what_cannot_be_given_back_stays_remembered(tmp_path: Path) -> None:
    async def story() -> None:
        stuck, lost, fine = gpu("stuck"), gpu("lost"), gpu("fine")
        node = Node(tmp_path, stuck, lost, fine)
        rules = AgentRules(period_s=0.01, restore_s=0.02)
        await node.agent.start()
        await node.looks()

        node.agent = agent_of(
            *("n1", "life-2", "boot-1", node.devices, tmp_path / "record", rules, node.clock),
            node.said.append,
        )
        await node.agent.start()
        stuck.stuck, lost.silent_from_s = True, node.clock.now_s
        await node.agent.restore()
        left = read_record(tmp_path / "record").previous

        assert fine.enforced_w(node.clock.now_s) == 700.0
        assert {uuid: each.limit_w for uuid, each in left.items()} == {"stuck": 700.0, "lost": 700.0}

    lived(story)


def test_a_device_that_was_taken_out_of_management_gets_its_limit_back_in_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu("a"), gpu("b"))
        await node.agent.start()
        await node.looks()
        rules = AgentRules(manages=frozenset({"a"}))

        node.agent = agent_of(
            *("n1", "life-2", "boot-1", node.devices, tmp_path / "record", rules, node.clock),
            node.said.append,
        )
        await node.agent.start()
        await node.looks()
        await node.agent.restore()

        assert set(node.devices.orders[-2:]) == {("a", 700.0), ("b", 700.0)}
        assert read_record(tmp_path / "record").previous == {}

    lived(story)


def test_out_of_band_no_burst_is_used_whatever_the_lease_allows(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu(wants_w=lambda _: 100.0))
        rules = AgentRules(bursts=False)
        node.agent = agent_of(
            *("n1", "life-1", "boot-1", node.devices, tmp_path / "record", rules, node.clock),
            node.said.append,
        )
        await node.agent.start()
        report = await node.looks()
        for _ in range(400):  # long enough to earn credit
            node.agent.receive(node.lease(report, {"g": 400.0}, burst_j={"g": 500.0}))
            report = await node.passes(1.0)

        assert {limit_w for _, limit_w in node.devices.orders} == {350.0, 400.0}

    lived(story)


def test_a_lease_that_ends_ends_a_burst_without_a_look_at_the_devices(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu(wants_w=lambda _: 100.0))
        await node.agent.start()
        report = await node.looks()
        for _ in range(400):
            node.agent.receive(node.lease(report, {"g": 400.0}, burst_j={"g": 500.0}))
            report = await node.passes(1.0)
        bursting_w = node.devices.orders[-1][1]
        node.clock.now_s += 11.0

        await node.agent.turn(looks=False)

        assert bursting_w == 700.0
        assert node.devices.orders[-1] == ("g", 250.0)

    lived(story)


def test_the_agent_acts_when_its_lease_ends_not_at_its_next_look(tmp_path: Path) -> None:
    async def story() -> None:
        clock, device, said = asyncio.get_running_loop().time, gpu(), list[bytes]()
        agent = agent_of(
            *("n1", "life", "boot", FakeDevices([device], clock), tmp_path / "record", AgentRules(period_s=3600.0)),
            *(clock, said.append),
        )
        stop = asyncio.Event()
        await agent.start()
        running = asyncio.create_task(agent.run(stop))
        await until_async(lambda: bool(said), "the first report")
        report = decoded(Report, said[-1], "n1")
        assert isinstance(report, Report)
        about = {"node": "n1", "life": "life", "echo_s": report.sent_s, "epoch": 1, "sequence": 1, "issued_s": 5.0}
        ends_s = clock() - report.sent_s + 0.5
        lease = Lease(**about, for_s=ends_s, caps_w={"g": 600.0}, safe_w={"g": 250.0})  # type: ignore[arg-type]

        agent.receive(encoded(lease))
        await until_async(lambda: device.enforced_w(clock()) == 600.0, "the lease is in force")
        await until_async(lambda: device.enforced_w(clock()) == 250.0, "the floor", within_s=10.0)

        stop.set()
        await running
        agent.close()

    lived(story)


class Unreadable(RecordingDevices):
    """Devices that take every limit, and cannot be read any more from some moment on."""

    is_readable = True

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        found = super().read()
        if self.is_readable:
            return found
        return {uuid: replace(each, limit_w=None) for uuid, each in found.items() if isinstance(each, DeviceReading)}


def test_a_limit_that_was_not_read_back_is_not_restored(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        devices = node.devices = Unreadable([gpu()], node.clock)
        rules = AgentRules(period_s=0.01, restore_s=0.02)
        node.agent = agent_of(
            *("n1", "life-1", "boot-1", devices, tmp_path / "record", rules, node.clock),
            node.said.append,
        )
        await node.agent.start()
        await node.looks()
        devices.is_readable = False

        await node.agent.restore()

        assert {uuid: each.limit_w for uuid, each in read_record(tmp_path / "record").previous.items()} == {"g": 700.0}

    lived(story)
