"""Connection to a BMC: TLS, one request at a time, with a time limit."""

import http.client
import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog

from nodeagent.loops import AgentLoop
from nodeagent.settings import RedfishSettings
from power.devices.backend import DeviceError

log = structlog.get_logger(__name__)
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
