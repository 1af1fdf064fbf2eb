"""Stopping restores the limit that was found before Tonnage's first order, or that was set by others since.

Agents are the real ones, with their record on disk. Events are orders, refusals, crashes before and after an order,
restarts, reboots, and limits set by others.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
from hypothesis import example, given, settings, strategies as st

from nodeagent.agent import NodeAgent
from nodeagent.recovery import AgentRules
from power.devices.backend import REFUSED, DeviceError
from power.leases.messages import Lease, encoded
from tests.clock import HandClock
from tests.fake_devices import FakeDevice, FakeDevices
from tests.node_agents import agent_of

pytestmark = pytest.mark.slow

many = settings(max_examples=max(500, settings.default.max_examples if settings.default else 0), deadline=None)

RULES = AgentRules(period_s=0.001, restore_s=0.001)
CLAMPS_W = (300.0, 500.0)
IN_MEMORY = next((str(each) for each in (Path("/dev") / "shm",) if each.is_dir()), None)
"""Records are synced at every order, which a disk makes slow and these tests do not look at."""

When = Literal["before", "after"]
Step = tuple[str, float]
"""What happens, and with how many watts."""


class CrashError(Exception):
    """The process ends here."""


class Hardware(FakeDevices):
    """One device that knows whose limit it has, refuses on request, and may be absent at an agent's start."""

    def __init__(self, device: FakeDevice) -> None:
        self.device, self.clock = device, HandClock(1000.0)
        super().__init__([device], self.clock)
        self.is_ours = self.refuses = False
        self.crashes: When | None = None

    @property
    def limit_w(self) -> float:
        return self.device.enforced_w(self.clock.now_s)

    def set_limit(self, uuid: str, limit_w: float) -> float:
        if self.crashes == "before":
            raise CrashError
        if self.refuses:
            raise DeviceError(REFUSED, "not now")
        taken_w = super().set_limit(uuid, limit_w)
        self.is_ours = True
        if self.crashes == "after":
            raise CrashError
        return taken_w

    def set_by_others(self, limit_w: float) -> None:
        self.device.set_limit(limit_w, self.clock.now_s)
        self.is_ours = False


class Story:
    """History of a node. `theirs_w` is to be restored: the limit of others that an agent found last at its start."""

    def __init__(self, folder: Path, hardware: Hardware) -> None:
        self.folder, self.hardware = folder, hardware
        self.theirs_w = hardware.limit_w
        self.sequence, self.lives, self.boots = 0, 0, 0
        self.agent: NodeAgent | None = None

    async def started(self) -> NodeAgent:
        if self.agent is None:
            self.lives += 1
            self.agent = agent_of(
                *("n1", f"life-{self.lives}", f"boot-{self.boots}", self.hardware, self.folder / "record", RULES),
                *(self.hardware.clock, lambda _: None),
            )
            if not self.hardware.is_ours:
                self.theirs_w = self.hardware.limit_w
            await self.agent.start()
        return self.agent

    def end(self) -> None:
        if self.agent is not None:
            self.agent.close()
        self.agent = None

    async def order(self, limit_w: float, crashes: When | None = None) -> None:
        """A lease comes and is put in force, as far as the process gets."""
        agent, hardware = await self.started(), self.hardware
        hardware.clock.now_s += 1.0
        self.sequence += 1
        lease = Lease(
            *("n1", agent.holder.life, hardware.clock.now_s, 10.0, 1, self.sequence, 5.0),
            caps_w={"g": limit_w},
            safe_w={"g": 200.0},
        )
        agent.receive(encoded(lease))
        assert agent.counts.refused == {}
        hardware.crashes = crashes
        with suppress(CrashError):
            await agent.turn(looks=True)
        hardware.crashes = None
        if crashes is not None:
            self.end()

    async def restore(self) -> None:
        self.hardware.refuses = False
        agent = await self.started()
        was_ours = self.hardware.is_ours
        await agent.restore()
        self.end()
        self.hardware.is_ours = False
        assert not was_ours or self.hardware.limit_w == self.theirs_w

    async def happen(self, what: str, watts: float) -> None:
        match what:
            case "order":
                await self.order(watts)
            case "crash before an order":
                await self.order(watts, "before")
            case "crash after an order":
                await self.order(watts, "after")
            case "restart":
                self.end()
                await self.started()
            case "refuses" | "obeys":
                self.hardware.refuses = what == "refuses"
            case "others":
                self.hardware.set_by_others(watts + 5.0)
            case "reboot":
                self.end()
                self.boots += 1
                self.hardware.device.reboot(self.hardware.clock.now_s)
                self.hardware.is_ours = False
            case "restore":
                await self.restore()


COMMON = (
    "order",
    "order",
    "order",
    "crash before an order",
    "restart",
    "refuses",
    "obeys",
    "others",
    "reboot",
    "restore",
)


def steps(*whats: str, lowest: int, highest: int) -> st.SearchStrategy[list[Step]]:
    """Limits of ours are multiples of ten, those of others of five: equal ones could not be distinguished."""
    watts = st.integers(lowest // 10, highest // 10 - 1).map(lambda tens: 10.0 * tens)
    return st.lists(st.tuples(st.sampled_from(whats), watts), max_size=25)


def lived(device: FakeDevice, found_w: float, happening: list[Step]) -> None:
    async def story() -> None:
        hardware = Hardware(device)
        hardware.set_by_others(found_w)
        with TemporaryDirectory(dir=IN_MEMORY) as folder:
            life = Story(Path(folder), hardware)
            for what, watts in happening:
                await life.happen(what, watts)
            life.end()
            await life.restore()
        assert hardware.limit_w == life.theirs_w

    asyncio.run(story())


@many
@given(
    found_w=st.sampled_from((205.0, 555.0, 695.0)),
    happening=steps(*COMMON, "crash after an order", lowest=200, highest=690),
)
@example(found_w=695.0, happening=[("order", 400.0), ("crash before an order", 300.0)])
@example(found_w=695.0, happening=[("order", 400.0), ("refuses", 0.0), *[("order", 10.0 * n) for n in range(20, 40)]])
@example(found_w=695.0, happening=[("order", 400.0), ("crash before an order", 300.0), ("others", 450.0)])
def test_stopping_gives_back_what_was_found_or_what_others_set_since(found_w: float, happening: list[Step]) -> None:
    lived(FakeDevice("g", default_w=645.0, obeys_after_s=0.0), found_w, happening)


@many
@given(
    found_w=st.sampled_from((305.0, 425.0)),
    happening=steps(*COMMON, lowest=200, highest=690).map(
        lambda each: [(what, min(max(watts, 300.0), 480.0) if what == "others" else watts) for what, watts in each]
    ),
)
@example(found_w=425.0, happening=[("order", 250.0)])
def test_so_it_does_where_a_device_makes_another_limit_of_ours(found_w: float, happening: list[Step]) -> None:
    """It clamps to 300 to 500 W without an error. The clamped limit is known once its answer is written: after a crash
    in between it would pass for a limit of others.
    """
    lived(FakeDevice("g", default_w=455.0, clamps_to_w=CLAMPS_W, obeys_after_s=0.0), found_w, happening)
