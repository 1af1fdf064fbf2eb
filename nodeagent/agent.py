"""The agent: it reads its devices, holds a power lease, keeps the devices within it, and reports.

Everything that keeps the node safe is in this process and on this machine: the clock, the lease, the devices. When the
lease has ended, for whatever reason, the devices go to their floor.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from cluster.clock import Clock
from nodeagent.loops import PAUSE_S, Turns
from nodeagent.out_of_band import MeterReading
from nodeagent.recovery import AgentRules, Session, record_at_start
from nodeagent.state_file import Record, RecordWriter, read_record
from power.devices import backend as devices_backend
from power.devices.backend import Backend, DeviceError, DeviceFacts, DeviceReading, OriginalLimit
from power.leases import holder as leases_holder
from power.leases.holder import Bursting, Holder, LimitOrder
from power.leases.messages import DeviceInventory, DeviceReport, Inventory, Lease, Refusal, Report, decoded, encoded
from power.rules import ROUNDING_W

log = structlog.get_logger(__name__)
T = TypeVar("T")
PAST_LOOKS = 20
"""Number of past readings kept for means: settings allow twenty readings a second."""
DISCOVERED_AGAIN_S = 60.0
"""Shortest interval between searches for devices that are read and were not found at the start."""
LONGEST_GAP_S = 10.0
"""Longest time for which one reading of the draw counts, also before the first: the lifetime of a lease."""


@dataclass(slots=True)
class AgentCounts:
    """Counters since the start, for the metrics."""

    refused: dict[str, int]
    """Refused leases by code."""
    failed: dict[str, int]
    """Failed calls to devices by code."""
    looks: int = 0
    leases: int = 0
    floors: int = 0
    """Number of times that a lease ended without renewal."""


def inventory_of(holder: Holder, facts: Mapping[str, DeviceFacts], previous: Mapping[str, OriginalLimit]) -> Inventory:
    """Inventory of all devices of the node, including those that are only read."""
    return Inventory(
        holder.node,
        holder.life,
        {
            uuid: DeviceInventory(
                model=each.model,
                min_w=each.min_w,
                max_w=each.max_w,
                default_w=each.default_w,
                previous_w=previous[uuid].limit_w if uuid in previous else each.default_w,
                managed=uuid in holder.devices,
                why_not=each.why_not,
                ramp_w_per_s=each.ramp_w_per_s,
            )
            for uuid, each in facts.items()
        },
    )


def device_reports(
    readings: Mapping[str, DeviceReading],
    draw_w: Mapping[str, float],
    allowed_w: Mapping[str, float],
    bursting: Bursting,
    now_s: float,
) -> Iterator[tuple[str, DeviceReport]]:
    """State of each device that reports its draw and its limit. draw_w: mean draws of the last second, by device."""
    for uuid, each in readings.items():
        if uuid not in draw_w or each.limit_w is None:
            continue
        yield (
            uuid,
            DeviceReport(
                draw_w=draw_w[uuid],
                age_s=max(0.0, now_s - each.at_s),
                # While a device may burst, its limit is not its lease; the lease is what it must keep on average.
                cap_w=allowed_w[uuid] if bursting.now.get(uuid) else each.limit_w,
                phase=leases_holder.phase_of(each),
            ),
        )


@dataclass(frozen=True, slots=True)
class Hardware:
    """What an agent acts on: the devices of its node, and the meter of the whole machine."""

    backend: Backend
    leave_at: Callable[[Mapping[str, float]], None] = lambda _: None
    """Takes the limit in watts of each device below which no burst is, for whoever outlives the agent's process
    (`DeviceProcess.leave_at`)."""
    meter: Callable[[], MeterReading | None] = lambda: None
    """Returns the last known draw of the whole node."""


class Controller(Protocol):
    """Connection to the controller, which may be down."""

    def send(self, message: bytes) -> None:
        """Sends a message, or drops it."""
        ...

    def reconnect(self) -> None:
        """Has the next connection begin with a new inventory."""
        ...


class NodeAgent:
    """Agent of one node. `run` is its main loop; `receive` is called with every message from the controller."""

    def __init__(
        self,
        session: Session,
        hardware: Hardware,
        record: Path,
        rules: AgentRules,
        clock: Clock,
        controller: Controller,
    ) -> None:
        """clock: monotonic, continues while this process restarts, and starts again with the machine."""
        self._session, self._hardware, self._record_path, self._rules = session, hardware, record, rules
        self._backend, self._clock, self._controller = hardware.backend, clock, controller
        self._writer = RecordWriter(record)
        self._discovered_s = float("-inf")
        # Only one thread calls drivers: their calls block and must not overtake each other.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="devices")
        self._wake = asyncio.Event()
        self._record = Record()
        self._facts: Mapping[str, DeviceFacts] = {}
        self._answered: tuple[int, float, float] | None = None
        self._in_force = (-1, -1)
        self._bursting = Bursting()
        self._was_leased = False
        self.readings: Mapping[str, DeviceReading] = {}
        self._past: deque[tuple[float, Mapping[str, DeviceReading]]] = deque(maxlen=PAST_LOOKS)
        self.draw_w: Mapping[str, float] = {}
        self.counts = AgentCounts({}, {})
        self.looked_at_s = float("-inf")
        self.accepted_kinds: tuple[str, ...] = ()
        """Kinds of messages, besides reports on power, that the controller of the newest lease takes."""

    @property
    def holder(self) -> Holder:
        assert self._record.holder is not None  # noqa: S101 - `start` has made it
        return self._record.holder

    @property
    def metered(self) -> MeterReading | None:
        """Last known draw of the whole node."""
        return self._hardware.meter()

    @property
    def facts(self) -> Mapping[str, DeviceFacts]:
        return self._facts

    def allowed_w(self) -> Mapping[str, float]:
        """Limit of each managed device now, by its lease or floor."""
        return leases_holder.limits(self.holder, self._clock())

    @property
    def has_lease(self) -> bool:
        return self._clock() < self.holder.ends_s

    @property
    def leased_at_s(self) -> float:
        """Instant when a lease was last accepted, by the agent's clock; -inf before the first of this session."""
        return float("-inf") if self._answered is None else self._answered[2]

    async def start(self) -> None:
        """Discovers the devices and records their original limits. Raises DeviceError, ConfigError."""
        facts = await self._device(self._backend.discover)
        found = await self._device(self._backend.read)
        self._facts = {each.uuid: each for each in facts}
        if forgetful := sorted(each.uuid for each in facts if each.is_persistent is False):
            log.warning(
                "persistence mode is off: an idle device returns to its default limit when this agent is replaced",
                devices=forgetful,
                remedy="run nvidia-persistenced on the host, or nvidia-smi -pm 1",
            )
        record = record_at_start(
            await asyncio.to_thread(read_record, self._record_path), facts, found, self._rules, self._session
        )
        await self._remember(record)

    async def _discover_again(self, found: Mapping[str, DeviceReading | DeviceError]) -> None:
        """Takes up devices that did not answer at the start, or came back since: a new session, with all of them.

        Until it has a lease nothing is raised. Raises DeviceError.
        """
        self._discovered_s = self._clock()
        facts = await self._device(self._backend.discover)
        if {each.uuid for each in facts} <= self._facts.keys():
            return
        log.warning("devices found after the start", devices=sorted({each.uuid for each in facts} - self._facts.keys()))
        self._facts = {each.uuid: each for each in facts}
        self._record = record_at_start(self._record, facts, found, self._rules, replace(self._session, life=new_life()))
        self._answered, self._in_force, self._bursting = None, (-1, -1), Bursting()
        await self._remember(self._record)
        self._controller.reconnect()

    def inventory(self) -> bytes:
        """First message of this agent on every connection to a controller."""
        return encoded(inventory_of(self.holder, self._facts, self._record.previous))

    async def run(self, stop: asyncio.Event) -> None:
        """Reads, acts and reports until `stop` is set: once in a period, and acts whenever a lease arrives or ends."""
        turns, next_look_s = Turns("devices"), self._clock()
        while not stop.is_set():
            self._wake.clear()
            looks = self._clock() >= next_look_s
            with turns.turn():
                await self.turn(looks=looks)
            if turns.is_failing and not looks:
                await asyncio.sleep(PAUSE_S)
            if looks:
                next_look_s = max(next_look_s + self._rules.period_s, self._clock())
            end_s = self.holder.ends_s if self.has_lease else float("inf")
            waits = [asyncio.ensure_future(self._wake.wait()), asyncio.ensure_future(stop.wait())]
            try:
                for_s = max(0.0, min(next_look_s, end_s) - self._clock())
                await asyncio.wait(waits, timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()

    async def turn(self, *, looks: bool) -> None:
        """Keeps the devices within the present lease; if `looks`, reads them first and reports afterwards."""
        if looks:
            await self._look()
        await self._act()
        if not looks:
            return
        now_s = self._clock()
        epoch, answered_s, at_s = self._answered or (-1, -1e15, now_s)
        here = {uuid: each for uuid, each in self.readings.items() if uuid in self._facts}
        devices = dict(device_reports(here, self.draw_w, self.allowed_w(), self._bursting, now_s))
        node, life = self._session.node, self.holder.life
        report = Report(node, life, now_s, *self._in_force, devices, epoch, answered_s, max(0.0, now_s - at_s))
        if (metered := self.metered) is not None:
            report = replace(report, meter_w=metered.watts, meter_age_s=max(0.0, now_s - metered.at_s))
        self._controller.send(encoded(report))

    def receive(self, travelled: bytes) -> None:
        """Handles a message from the controller: an acceptable lease for this node applies from now on."""
        lease = decoded(Lease, travelled, self._session.node)
        holder, refusal = (
            (self.holder, lease)
            if isinstance(lease, Refusal)
            else leases_holder.accepted(self.holder, lease, self._clock())
        )
        if refusal is not None:
            self.counts.refused[refusal.code] = self.counts.refused.get(refusal.code, 0) + 1
            log.warning("lease refused", code=refusal.code, why=refusal.words)
            return
        self.counts.leases += 1
        self.accepted_kinds = lease.hears if isinstance(lease, Lease) else ()
        if not self._rules.bursts:
            holder = replace(holder, burst_j={})
        self._record = replace(self._record, holder=holder)
        self._answered = (holder.epoch, holder.issued_s, self._clock())
        self._wake.set()

    async def end_bursts(self) -> None:
        """Lowers every device to its lease: after this agent nobody would end a burst."""
        if self._record.holder is None:
            return
        lower, _ = leases_holder.orders(self.allowed_w(), self._enforced_w(), {})
        for order in lower:
            await self._set_limit(order)

    async def restore(self) -> None:
        """Restores the original limit of every device and forgets it. A limit that could not be restored stays on
        record.
        """
        left = {
            uuid: limit_w
            for uuid, previous in self._record.previous.items()
            if uuid in self._facts
            and (limit_w := devices_backend.limit_to_restore(previous, self._facts[uuid])) is not None
        }
        for attempt in range(max(1, round(self._rules.restore_s / self._rules.period_s))):
            if attempt:
                await asyncio.sleep(self._rules.period_s)
            left = {uuid: limit_w for uuid, limit_w in left.items() if not await self._is_at(LimitOrder(uuid, limit_w))}
            if not left:
                break
        for uuid, limit_w in left.items():
            log.error("limit not restored", device=uuid, limit_w=limit_w)
        # A device that is absent now may come back with the limit that we set.
        kept = {u: each for u, each in self._record.previous.items() if u in left or u not in self._facts}
        await self._writer.write(Record(kept, self._session.boot, None))

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _look(self) -> None:
        self.counts.looks += 1
        try:
            found = await self._device(self._backend.read)
            unknown = any(isinstance(each, DeviceReading) and uuid not in self._facts for uuid, each in found.items())
            if unknown and self._clock() >= self._discovered_s + DISCOVERED_AGAIN_S:
                await self._discover_again(found)
        except DeviceError as error:
            found = dict.fromkeys(self._facts, error)
        for each in found.values():
            if isinstance(each, DeviceError):
                self._failed(each)
        self.readings = {u: r for u, r in found.items() if isinstance(r, DeviceReading)}
        now_s = self._clock()
        before = leases_holder.reading_before(self._past, now_s, self._rules.mean_s) or {}
        self._past.append((now_s, self.readings))
        draws = {uuid: leases_holder.mean_draw_w(before.get(uuid), each) for uuid, each in self.readings.items()}
        self.draw_w = {uuid: draw for uuid, draw in draws.items() if draw is not None}
        for_s = min(now_s - self.looked_at_s, LONGEST_GAP_S)
        self.looked_at_s = now_s
        burst_j = leases_holder.bursts(self.holder, now_s)
        self._bursting = leases_holder.bursting_after(
            self._bursting, self.draw_w, self.allowed_w(), burst_j, for_s, self.holder.credit_back_s
        )

    async def _act(self) -> None:
        """Sets the limits; raises them only when every limit that had to be lowered was read back."""
        if self._was_leased and not self.has_lease:
            self.counts.floors += 1
            self._bursting = Bursting()
            log.warning("lease ended without renewal: devices go to their floor")
        self._was_leased = self.has_lease
        holder, allowed_w = self.holder, self.allowed_w()
        highest_w = {
            uuid: min(self._facts[uuid].max_w, holder.burst_to_w.get(uuid, float("inf"))) for uuid in allowed_w
        }
        wanted_w = leases_holder.limits_to_set_w(allowed_w, highest_w, self._bursting)
        self._hardware.leave_at(allowed_w)
        enforced_w = self._enforced_w()
        asked_w = {u: r.requested_w for u, r in self.readings.items() if r.requested_w is not None}
        lower, higher = leases_holder.orders(wanted_w, enforced_w, asked_w)
        # Lowered in any case, raised only with a record: after a crash a limit of ours must be known as such.
        previous = dict(self._record.previous)
        for order in (*lower, *higher):
            previous[order.uuid] = devices_backend.before_setting(
                previous[order.uuid], order.limit_w, enforced_w.get(order.uuid)
            )
        recorded = await self._remember(replace(self._record, previous=previous))
        answers = [await self._set_limit(order) for order in lower]
        if recorded and None not in answers:
            answers += [await self._set_limit(order) for order in higher]
        settled = dict(self._record.previous)
        for order, answer_w in zip((*lower, *higher), answers, strict=False):
            if answer_w is not None:
                settled[order.uuid] = devices_backend.after_setting(settled[order.uuid], answer_w)
        recorded = await self._remember(replace(self._record, previous=settled))
        is_lowered = recorded and None not in answers[: len(lower)]  # else an older request may yet take effect
        if is_lowered and holder.sequence >= 0 and leases_holder.is_in_force(wanted_w, self._enforced_w()):
            self._in_force = (holder.epoch, holder.sequence)

    def _enforced_w(self) -> dict[str, float]:
        return {uuid: each.limit_w for uuid, each in self.readings.items() if each.limit_w is not None}

    async def _is_at(self, order: LimitOrder) -> bool:
        """Sets this limit and returns whether the device reports it as requested, and enforces no more."""
        if await self._set_limit(order) is None:
            return False
        try:
            found = (await self._device(self._backend.read)).get(order.uuid)
        except DeviceError:
            return False
        if not isinstance(found, DeviceReading) or found.limit_w is None:
            return False
        if found.requested_w is None:
            return abs(found.limit_w - order.limit_w) <= ROUNDING_W
        # Something else, such as a BMC, may hold the device lower than the limit that was found.
        enforces = found.limit_w <= order.limit_w + ROUNDING_W
        return enforces and abs(found.requested_w - order.limit_w) <= ROUNDING_W

    async def _set_limit(self, order: LimitOrder) -> float | None:
        """Sets a limit and returns what the device then enforces; None when that is unknown."""
        try:
            enforced_w = await self._device(lambda: self._backend.set_limit(order.uuid, order.limit_w))
        except DeviceError as error:
            self._failed(error)
            log.warning("device not limited", device=order.uuid, limit_w=order.limit_w, why=str(error))
            return None
        if order.uuid in self.readings:
            # The requested limit stays unknown until the next reading: a BMC is called later.
            seen = replace(self.readings[order.uuid], limit_w=enforced_w, requested_w=None)
            self.readings = {**self.readings, order.uuid: seen}
        return enforced_w

    async def _remember(self, record: Record) -> bool:
        """Whether the record is on disk. A lease that arrives meanwhile is written before it is put in force."""
        written = await self._writer.write(record)
        self._record = replace(record, holder=self._record.holder or record.holder)
        return written

    async def _device(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def _failed(self, error: DeviceError) -> None:
        self.counts.failed[error.code] = self.counts.failed.get(error.code, 0) + 1


def new_life() -> str:
    return os.urandom(8).hex()
