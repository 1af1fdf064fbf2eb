"""Asynchronous wrapper of a slow back end: callers get immediate answers, and the load on the BMC is limited.

One thread reads periodically. Another sets the newest requested limit of each device: rarely, one after the other, at
times that differ from node to node. An accepted limit is not in force yet. For as long as that may take, the device
counts as enforcing the higher of the old and the new limit, so that power still drawn is not granted elsewhere.
"""

import http.client
import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random, SystemRandom
from time import monotonic
from typing import Any

import structlog

from nodeagent.loops import AgentLoop
from nodeagent.settings import RedfishSettings
from power.devices.backend import BROKEN, SILENT, Backend, DeviceError, DeviceFacts, DeviceReading
from power.devices.redfish import Redfish

log = structlog.get_logger(__name__)
SAME_W = 0.6
"""Tolerance for rounding: BMCs accept whole watts."""
LONGEST_REST_S = 120.0
"""Longest pause, however often a device has failed."""
OLD_LOOKS = 3.0
"""Number of reading intervals after which a reading is no longer used."""


@dataclass(slots=True)
class _Device:
    reading: DeviceReading | None = None
    error: DeviceError | None = None
    """Error of the last reading, if it failed."""
    wanted_w: float | None = None
    sending_w: float | None = None
    """Limit being sent: it may be in force before the answer arrives."""
    past: list[tuple[float, float]] = field(default_factory=list)
    """(instant until which it may still be in force, limit)."""
    not_before_s: float = float("-inf")
    answered_at_s: float = float("-inf")
    """Instant of the last answer to a request for a limit."""
    failures: int = 0
    refusal: DeviceError | None = None
    """Error of the last attempt to set its limit, raised once at the next call."""

    def held_w(self, now_s: float) -> float | None:
        """Highest limit that may be in force now."""
        if self.reading is None or self.reading.limit_w is None:
            return None
        self.past = [each for each in self.past if each[0] > now_s]
        on_its_way = [] if self.sending_w is None else [self.sending_w]
        return max(self.reading.limit_w, *on_its_way, *(limit_w for _, limit_w in self.past), 0.0)

    def seen(self, reading: DeviceReading, settled_s: float) -> None:
        """Records a reading. If the limit changed, for whatever reason, the old one may stay in force for a while."""
        before_w = self.reading.limit_w if self.reading is not None else None
        if before_w is not None and reading.limit_w is not None and abs(before_w - reading.limit_w) > SAME_W:
            self.past.append((settled_s, before_w))
        self.reading, self.error = reading, None


class OutOfBand:
    """Back end whose readings and limits are handled by two threads after `start`; `look` and `tell` run once each
    without it.
    """

    def __init__(self, behind: Backend, clock: Callable[[], float], chance: Random, pacing: RedfishSettings) -> None:
        """behind: read and set from one thread each at the same time. clock: monotonic, that of its readings."""
        self._behind, self._clock, self._chance, self._pacing = behind, clock, chance, pacing
        self._devices: dict[str, _Device] = {}
        self._lock = threading.Lock()
        self._stop, self._news = threading.Event(), threading.Event()
        look_s, rest_s = pacing.look_s, pacing.rest_s
        self._loops = (
            AgentLoop("readings of the BMC", self._polling, begin_s=look_s, pause_s=look_s),
            AgentLoop("limits of the BMC", self._sending, pause_s=rest_s),
        )

    def discover(self) -> tuple[DeviceFacts, ...]:
        """The devices. Blocks for as long as the BMC takes, and reads once."""
        facts = self._behind.discover()
        with self._lock:
            self._devices = {each.uuid: self._devices.get(each.uuid, _Device()) for each in facts}
        self.poll()
        return facts

    def start(self) -> None:
        for each in self._loops:
            each.start()

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        """The newest readings, however old, with the limits that may be in force."""
        now_s = self._clock()
        with self._lock:
            return {
                uuid: device.error or DeviceError(SILENT, "its BMC has not answered for long")
                if (reading := device.reading) is None or now_s - reading.at_s > OLD_LOOKS * self._pacing.look_s
                else replace(reading, limit_w=device.held_w(now_s))
                for uuid, device in self._devices.items()
            }

    def set_limit(self, uuid: str, limit_w: float) -> float:
        """Requests a limit; returns the one that may be in force now. An error of the last attempt is raised once."""
        with self._lock:
            device = self._devices.get(uuid)
            if device is None:
                raise DeviceError(SILENT, f"{uuid} was not found when its BMC was searched")
            device.wanted_w = limit_w
            self._news.set()
            refusal, device.refusal = device.refusal, None
            held_w = device.held_w(self._clock())
        if refusal is not None:
            raise refusal
        if held_w is None:
            raise DeviceError(SILENT, f"{uuid}: its BMC has not reported a limit yet")
        return held_w

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._behind.set_clocks(uuid, max_mhz)

    def close(self) -> None:
        self._stop.set()
        self._news.set()
        for each in self._loops:
            each.close()
        self._behind.close()

    def poll(self) -> None:
        """Reads all devices once."""
        try:
            found = self._behind.read()
        except DeviceError as error:
            found = dict.fromkeys(self._devices, error)
        settled_s = self._clock() + self._pacing.settles_s
        with self._lock:
            for uuid, each in found.items():
                device = self._devices.setdefault(uuid, _Device())
                if isinstance(each, DeviceError):
                    device.error = each
                elif device.reading is not None and each.at_s <= device.answered_at_s:
                    # Read before the limit was set but delivered afterwards: its limit is outdated.
                    device.seen(replace(each, limit_w=device.reading.limit_w), settled_s)
                else:
                    device.seen(each, settled_s)

    def send_due(self) -> float:
        """Sets the requested limit of every device that is due, lowered ones first; returns seconds until the next is
        due.
        """
        now_s = self._clock()
        with self._lock:
            waiting = [
                (device.wanted_w - reading.limit_w, uuid, device.wanted_w, device.not_before_s)
                for uuid, device in self._devices.items()
                if device.wanted_w is not None
                and (reading := device.reading) is not None
                and reading.limit_w is not None
                and abs(reading.limit_w - device.wanted_w) > SAME_W
            ]
        for _, uuid, limit_w, not_before_s in sorted(waiting):
            if not_before_s <= now_s and not self._stop.is_set():
                self._send(uuid, limit_w)
        later = [not_before_s - now_s for *_, not_before_s in waiting if not_before_s > now_s]
        return max(0.1, min(later, default=self._pacing.rest_s))

    def _send(self, uuid: str, limit_w: float) -> None:
        with self._lock:
            device = self._devices[uuid]
            device.sending_w = limit_w
        refusal, taken_w = None, 0.0
        try:
            taken_w = self._behind.set_limit(uuid, limit_w)
        except DeviceError as error:
            refusal = error
        except Exception as error:  # noqa: BLE001 - an odd answer is the BMC's, and may come after the limit was taken
            refusal = DeviceError(BROKEN, f"{type(error).__name__}: {error}")
        now_s = self._clock()
        settled_s = now_s + self._pacing.settles_s
        with self._lock:
            device.sending_w, device.refusal, device.answered_at_s = None, refusal, now_s
            if refusal is not None or device.reading is None:
                device.past.append((settled_s, limit_w))  # it may have been accepted all the same
                device.failures += 1
            else:
                device.seen(replace(device.reading, limit_w=taken_w, requested_w=taken_w), settled_s)
                device.failures = 0
            rest_s = min(self._pacing.rest_s * 2.0**device.failures, LONGEST_REST_S)
            device.not_before_s = now_s + self._longer(rest_s)

    def _polling(self) -> float:
        self.poll()
        return self._longer(self._pacing.look_s)

    def _sending(self) -> float:
        self._news.clear()
        self._news.wait(self.send_due())
        # Requests arrive once a period and are mostly the same: new ones are collected for a moment.
        return self._longer(0.2)

    def _longer(self, for_s: float) -> float:
        return for_s * (1 + self._chance.uniform(0.0, JITTER_SHARE))


def started(bmc: RedfishSettings) -> OutOfBand:
    """Devices behind a BMC, read and set from now on."""
    made = OutOfBand(Redfish(Bmc(bmc, READ_S), monotonic, Bmc(bmc, SET_S)), monotonic, SystemRandom(), bmc)
    made.start()
    return made


READ_S, SET_S = 10.0, 60.0
"""Time limits of answers: a reading that arrives later is useless; setting a limit was seen to take up to 46 s."""


class Bmc:
    """Transport of power.devices.redfish over one connection, opened on demand and again after every failure."""

    def __init__(self, access: RedfishSettings, patience_s: float) -> None:
        """The user's name and password are read for every request, since they may be replaced."""
        self._access, self._patience_s = access, patience_s
        self._connection: http.client.HTTPSConnection | None = None
        self._one_at_a_time = threading.Lock()

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], Any]:
        with self._one_at_a_time:
            try:
                if self._connection is None:
                    ca_file = self._access.ca_file
                    trusted = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
                    self._connection = http.client.HTTPSConnection(
                        self._access.host, self._access.port, timeout=self._patience_s, context=trusted
                    )
                user, password = (
                    (self._access.login / name).read_text(encoding="utf-8").strip() for name in ("username", "password")
                )
                sent = {
                    "Accept": "application/json",
                    "Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}",
                    "OData-Version": "4.0",
                    **({"Content-Type": "application/json"} if body is not None else {}),
                    **headers,
                }
                self._connection.request(method, path, None if body is None else json.dumps(body), sent)
                answer = self._connection.getresponse()
                raw = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise OSError(f"{self._access.host}: {type(error).__name__} {error}") from error
        found = None
        with suppress(ValueError):
            found = json.loads(raw) if raw else None
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, found

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


JITTER_SHARE = 0.25
"""Fraction by which intervals are lengthened at most, so that a fleet does not send its requests at the same time."""
REST_S = 60.0
"""Pause after a failed reading: finding the meter takes a BMC as many requests as it has chassis."""


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Draw of the machine."""

    watts: float
    at_s: float
    """Instant by the agent's clock before the BMC was asked: the earliest possible one of the reading."""


class NodeMeter:
    """Periodic reader of the meter. `reading` is the newest one, however old (see its instant); None: none yet."""

    def __init__(self, read_w: Callable[[], float], clock: Callable[[], float], chance: Random, look_s: float) -> None:
        """read_w: reads the meter; raises DeviceError."""
        self._read_w, self._clock, self._chance, self._look_s = read_w, clock, chance, look_s
        self._trouble = ""
        self.reading: MeterReading | None = None
        self.loop = AgentLoop("meter", self._turn, pause_s=max(look_s, REST_S))

    def look(self) -> bool:
        """Reads once and returns whether that succeeded. A failure is logged once."""
        began_s = self._clock()
        try:
            self.reading = MeterReading(self._read_w(), began_s)
        except DeviceError as error:
            if not self._trouble:
                log.warning("the node's meter cannot be read", why=str(error))
            self._trouble = str(error)
            return False
        if self._trouble:
            log.info("the node's meter can be read again")
        self._trouble = ""
        return True

    def _turn(self) -> float:
        rest_s = self._look_s if self.look() else max(self._look_s, REST_S)
        return rest_s * (1 + self._chance.uniform(0.0, JITTER_SHARE))
