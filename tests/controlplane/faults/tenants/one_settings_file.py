"""Two operators from one settings file, with one identity in it."""

from threading import Event

from tests.controlplane.faults.scenarios import a_wave
from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import beside_canaries


def one_settings_file(play: Play, rounds: int) -> None:
    """Two operators are started from one settings file, with one identity in it: one of them leads at any time."""
    with beside_canaries(play, operators=2, identity="of-one-file"):

        def look() -> None:
            play.injected["looks at who leads"] += 1
            if sum(actor.leads for actor in play.actors) > 1:
                play.untrue.append("two lead at one time")

        with play.meanwhile(look, 0.1):
            for number in range(rounds):
                play.create(a_wave(play, number))
                play.settle()
                play.clear()
            Event().wait(4.0)
