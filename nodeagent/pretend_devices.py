"""Back end of nodes without devices of their own: simulated devices with steady work, or none at all."""

from collections.abc import Callable, Mapping

from power.devices.backend import LOST, REFUSED, DeviceError, DeviceFacts, DeviceReading

LEAST_W, MOST_W, WANTED_W = 200.0, 700.0, 600.0
LOWEST_MHZ, HIGHEST_MHZ = 210.0, 1980.0


class PretendDevices:
    """Back end of `count` simulated devices, named after their node; 0: there is nothing to read or to limit."""

    def __init__(self, node: str, count: int, clock: Callable[[], float]) -> None:
        self._clock, self._began_s = clock, clock()
        names = [f"pretend-{node}-{number}" for number in range(count)]
        self._limit_w, self._clock_mhz = dict.fromkeys(names, MOST_W), dict.fromkeys(names, HIGHEST_MHZ)

    def discover(self) -> tuple[DeviceFacts, ...]:
        limits_w, clocks_mhz = (LEAST_W, MOST_W, MOST_W), (LOWEST_MHZ, HIGHEST_MHZ)
        return tuple(
            DeviceFacts(uuid, "Pretend H100", "pretend", *limits_w, can_limit=True, clocks_mhz=clocks_mhz)
            for uuid in self._limit_w
        )

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        now_s = self._clock()
        return {
            uuid: DeviceReading(
                uuid=uuid,
                at_s=now_s,
                draw_w=min(WANTED_W, limit_w),
                limit_w=limit_w,
                requested_w=limit_w,
                energy_j=min(WANTED_W, limit_w) * (now_s - self._began_s),
                busy_share=1.0,
                sm_clock_mhz=self._clock_mhz[uuid],
                throttled_by=("power_cap",) if limit_w < WANTED_W else (),
            )
            for uuid, limit_w in self._limit_w.items()
        }

    def set_limit(self, uuid: str, limit_w: float) -> float:
        self._check(uuid)
        if not LEAST_W <= limit_w <= MOST_W:
            raise DeviceError(REFUSED, f"{limit_w:g} W is not in {LEAST_W:g}..{MOST_W:g} W")
        self._limit_w[uuid] = limit_w
        return limit_w

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        self._check(uuid)
        self._clock_mhz[uuid] = HIGHEST_MHZ if max_mhz is None else max_mhz

    def close(self) -> None:
        """Nothing is open."""

    def _check(self, uuid: str) -> None:
        if uuid not in self._limit_w:
            raise DeviceError(LOST, f"{uuid} is not here")
