"""Nothing is done: the waits that those of the other scenarios stand beside."""

from threading import Event

from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import beside_canaries


def quiet(play: Play, rounds: int) -> None:
    """Nothing is done to it: what the other figures stand beside."""
    with beside_canaries(play):
        Event().wait(8.0 * rounds)
