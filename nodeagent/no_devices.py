"""Back end of a node without devices, such as one that only runs agents' sandboxes."""

from collections.abc import Mapping

from power.devices.backend import REFUSED, DeviceError, DeviceFacts, DeviceReading


class NoDevices:
    """Implements `Backend`: there is nothing to read or to limit."""

    def discover(self) -> tuple[DeviceFacts, ...]:
        return ()

    def read(self) -> Mapping[str, DeviceReading | DeviceError]:
        return {}

    def set_limit(self, uuid: str, limit_w: float) -> float:
        raise DeviceError(REFUSED, f"{uuid} at {limit_w:g} W: this node has no devices (backend none)")

    def set_clocks(self, uuid: str, max_mhz: float | None) -> None:
        raise DeviceError(REFUSED, f"{uuid} at {max_mhz} MHz: this node has no devices (backend none)")

    def close(self) -> None:
        """Nothing is open."""
