"""Out of band: whatever a BMC does with an order, and when, a device never counts as limited lower than it is."""

from collections.abc import Mapping
from random import Random

from hypothesis import given, settings, strategies as st

from nodeagent.out_of_band import OutOfBand
from nodeagent.settings import RedfishSettings
from power.devices.backend import SILENT, DeviceError, DeviceFacts, DeviceReading

SETTLES_S = 40.0
FACTS = DeviceFacts("g", "GPU", "pretend", 200.0, 700.0, 700.0, can_limit=True)

many = settings(max_examples=max(500, settings.default.max_examples if settings.default else 0))


class Slow:
    """A device whose limits take effect at any moment within `SETTLES_S`, whether their answer arrived or not."""

    def __init__(self, delays_s: list[float], lost: list[bool], clock: list[float]) -> None:
        self.delays_s, self.lost, self.clock = delays_s, lost, clock
        self.setpoint_w = 700.0
        self.due: list[tuple[float, float]] = [(-1.0, 700.0)]
        self.orders = 0

    def at_work_w(self) -> float:
        """The newest of those whose time has come: a later order undoes an earlier one that is still under way."""
        return [limit_w for at_s, limit_w in self.due if at_s <= self.clock[0]][-1]

    def discover(self) -> tuple[DeviceFacts, ...]:
        return (FACTS,)

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        return {"g": DeviceReading("g", self.clock[0], 300.0, self.setpoint_w)}

    def set_limit(self, uuid: str, limit_w: float) -> float:
        delay_s, is_lost = (each[self.orders % len(each)] for each in (self.delays_s, self.lost))
        self.orders += 1
        self.setpoint_w = limit_w
        self.due.append((self.clock[0] + delay_s, limit_w))
        if is_lost:
            raise DeviceError(SILENT, "the answer was lost")
        return limit_w

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None: ...

    def close(self) -> None: ...


steps = st.lists(
    st.tuples(
        st.sampled_from(("want", "look", "tell", "reset")),
        st.sampled_from((200.0, 300.0, 450.0, 700.0)),
        st.floats(0.0, 15.0),
    ),
    max_size=40,
)


@many
@given(
    steps=steps,
    delays_s=st.lists(st.floats(0.0, SETTLES_S - 0.1), min_size=1, max_size=5),
    lost=st.lists(st.booleans(), min_size=1, max_size=5),
    seed=st.integers(0, 9),
)
def test_a_device_never_counts_as_limited_lower_than_it_is(
    steps: list[tuple[str, float, float]], delays_s: list[float], lost: list[bool], seed: int
) -> None:
    clock = [0.0]
    device = Slow(delays_s, lost, clock)
    pacing = RedfishSettings(host="bmc", look_s=1000.0, settles_s=SETTLES_S)
    band = OutOfBand(device, lambda: clock[0], Random(seed), pacing)  # noqa: S311 - spreads requests
    band.discover()

    for deed, limit_w, for_s in steps:
        clock[0] += for_s
        if deed == "want":
            try:
                told_w = band.set_limit("g", limit_w)
            except DeviceError:
                continue
            assert told_w >= device.at_work_w()
        elif deed == "look":
            band.poll()
        elif deed == "tell":
            band.send_due()
        else:
            device.setpoint_w = 700.0  # the BMC was restarted: its default applies at once
            device.due.append((clock[0], 700.0))
            band.poll()
        reading = band.read()["g"]
        assert isinstance(reading, DeviceReading)
        assert reading.limit_w is not None
        assert reading.limit_w >= device.at_work_w()
