"""Pair probes of real agents: what they measure on a sound, a slow and a cut network, and whom they refuse."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from health.records.frames import PROBE_KIND, Peer, ProbeOrder, packed
from health.remediation.facts import FaultEvidence, Origin
from health.verdicts.verdict import Part, Syndrome
from nodeagent.health.probe_listener import ProbeListener
from nodeagent.health.prober import MOST_A_MINUTE, Prober
from power.leases.messages import encoded_text
from tests.agents.probing_fleet import NODES, Controller, Namespaces, probing_fleet
from tests.clock import HandClock
from tests.until import until
from tonnage.probe_wire import MAGIC, PAIR_S, PairReading, measured_with

TOKEN = "ab" * 16


@pytest.fixture
def listener() -> Iterator[ProbeListener]:
    made = ProbeListener("127.0.0.1", 0)
    made.start()
    yield made
    made.close()


def peer(listener: ProbeListener, token: str = TOKEN) -> Peer:
    return Peer("b", "127.0.0.1", listener.port, token)


def probed(peer: Peer, within_s: float = PAIR_S) -> PairReading:
    return measured_with(peer.host, peer.port, bytes.fromhex(peer.token), within_s=within_s)


def admitting(listener: ProbeListener, *tokens: str) -> None:
    listener.admit(tuple(bytes.fromhex(token) for token in tokens))


def test_a_pair_on_loopback_is_measured_both_ways(listener: ProbeListener) -> None:
    admitting(listener, TOKEN)

    found = probed(peer(listener))

    assert found.failure == ""
    assert 0 < found.rtt_s < 0.1
    assert found.out_bytes_per_s > 1e6
    assert found.in_bytes_per_s > 1e6


def test_a_token_is_good_for_one_measurement(listener: ProbeListener) -> None:
    admitting(listener, TOKEN)
    assert probed(peer(listener)).failure == ""

    assert probed(peer(listener), within_s=0.5).failure == "refused"


def test_whoever_does_not_know_the_token_gets_nothing(listener: ProbeListener) -> None:
    admitting(listener, TOKEN)

    assert probed(peer(listener, "cd" * 16), within_s=0.5).failure == "refused"
    assert probed(peer(listener)).failure == ""  # and takes no token away


@pytest.mark.parametrize("said", [b"", b"\x80\x04.", b"GET / HTTP/1.1\r\n\r\n" * 8, MAGIC + b"n" * 16 + b"p" * 32])
def test_a_stranger_is_cut_off_and_the_next_client_is_served(listener: ProbeListener, said: bytes) -> None:
    admitting(listener, TOKEN)
    with closing(socket.create_connection(("127.0.0.1", listener.port), 5)) as stranger:
        stranger.sendall(said)
        if not said:
            stranger.shutdown(socket.SHUT_WR)
        until(lambda: listener.refused == 1, "the stranger is refused", 5.0)

    assert probed(peer(listener)).failure == ""


def test_a_peer_whose_address_is_none_is_not_measured_and_ends_nothing() -> None:
    """A name of 300 letters is an error of encoding, which ended the prober's thread."""
    assert probed(Peer("b", "x" * 300, 9468, TOKEN)).failure == "failed"


def test_a_peer_that_accepts_and_stays_silent_is_lost_within_the_time_of_a_pair() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        silent = Peer("b", "127.0.0.1", mute.getsockname()[1], TOKEN)

        assert probed(silent).failure == "silent"


class Ordered:
    """A prober without a thread: what it makes of orders."""

    def __init__(self, listener: ProbeListener) -> None:
        self.clock, self.sent = HandClock(100.0), {7: 99.0, 8: 99.5}
        self.prober = Prober("a", "life", listener, self.clock, self.sent.get)

    def hear(self, order: ProbeOrder) -> bool:
        return self.prober.receive(encoded_text(PROBE_KIND, packed(order)))


ORDER = ProbeOrder("a", "life", 7, "n", (), (TOKEN,))


def test_an_order_is_accepted_once_and_only_for_this_session_and_a_fresh_report(listener: ProbeListener) -> None:
    node = Ordered(listener)

    assert node.hear(ORDER)
    assert node.prober.refused == {}
    for changed in (
        ORDER,
        replace(ORDER, answers=6),
        replace(ORDER, answers=8, life="before"),
        replace(ORDER, node="b"),
    ):
        assert node.hear(changed)
    assert node.prober.refused == {"Replayed": 2, "OtherLife": 1, "OtherNode": 1}
    node.clock.now_s = 200.0
    node.hear(replace(ORDER, answers=8))
    node.hear(replace(ORDER, answers=9))
    assert node.prober.refused["Late"] == 2


def test_a_message_of_another_kind_is_no_order(listener: ProbeListener) -> None:
    node = Ordered(listener)

    assert not node.prober.receive(encoded_text("lease", packed(ORDER)))
    assert not node.prober.receive(packed(ORDER))


def test_an_order_that_cannot_be_read_or_asks_too_much_is_refused(listener: ProbeListener) -> None:
    node = Ordered(listener)

    assert node.prober.receive(encoded_text(PROBE_KIND, b"\x80\x04."))  # a pickle
    node.hear(replace(ORDER, admit=("zz",)))
    node.hear(replace(ORDER, measure=(Peer("b", "127.0.0.1", 1, TOKEN),) * 5))

    assert node.prober.refused == {"Unreadable": 3}


def test_an_agent_measures_so_many_pairs_a_minute_whatever_it_is_ordered(listener: ProbeListener) -> None:
    node = Ordered(listener)
    node.prober._begun.extend([100.0] * MOST_A_MINUTE)
    node.prober._orders.put(replace(ORDER, measure=(peer(listener),)))

    node.prober._measure()

    assert [each.failure for each in node.prober.results()] == ["too many"]


def test_agents_on_loopback_probe_each_other_when_the_controller_says_so(tmp_path: Path) -> None:
    with probing_fleet(tmp_path) as controller:
        controller.ask("a", "b")

        found = answered(controller)

        # Loopback of a busy machine is uneven: what counts is that every pair was measured and answered in time.
        assert found.at_s > 0
        assert controller.refused == {}
        assert controller.stream.refused == {}


def test_agents_without_probes_say_so_and_the_question_stays_open(tmp_path: Path) -> None:
    with probing_fleet(tmp_path, probes=False) as controller:
        until(lambda: len(controller.stream.hosts) == 4, "all agents report", 30.0)
        controller.ask("a", "b")

        found = answered(controller)

        assert not controller.ready
        assert "no pair could be measured" in found.shown[-1]


def answered(controller: Controller) -> FaultEvidence:
    until(lambda: bool(controller.found), "an answer of the probes", 35.0)
    return controller.found[0]


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Namespaces, Controller]]:
    """Four agents, each in a network namespace whose link can be shaped."""
    spaces = Namespaces(NODES)
    if os.geteuid():
        pytest.skip("network namespaces need root")
    try:
        spaces.open()
        with probing_fleet(tmp_path_factory.mktemp("shaped"), spaces) as controller:
            yield spaces, controller
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"no network namespaces with shaping here: {getattr(error, 'stderr', error)!r}")
    finally:
        spaces.close()


@pytest.fixture
def spaces(shaped: tuple[Namespaces, Controller]) -> Namespaces:
    """The namespaces with sound links."""
    for node in NODES:
        shaped[0].mend(node)
    return shaped[0]


@pytest.fixture
def controller(shaped: tuple[Namespaces, Controller]) -> Controller:
    return shaped[1]


def named(found: FaultEvidence) -> tuple[Part, list[str], Origin]:
    return found.part, [key.name for key in found.nodes], found.source


@pytest.mark.slow
@pytest.mark.usefixtures("spaces")
def test_on_a_sound_network_nothing_is_accused(controller: Controller) -> None:
    controller.ask("a", "b")

    found = answered(controller)

    assert (found.over, found.source) == (True, Origin.JOB)
    assert "no fault of the network" in found.shown[0]


@pytest.mark.slow
def test_a_token_bucket_on_one_nodes_interface_is_its_nic(spaces: Namespaces, controller: Controller) -> None:
    spaces.slow_nic("b", "60mbit")
    controller.ask("a", "b")

    assert named(answered(controller)) == (Part.NIC, ["b"], Origin.NODE)


@pytest.mark.slow
def test_a_slow_path_to_one_peer_is_the_link(spaces: Namespaces, controller: Controller) -> None:
    spaces.slow_link("a", "b", "60mbit")
    controller.ask("a", "b")

    assert named(answered(controller)) == (Part.LINK, ["a", "b"], Origin.NODE)


@pytest.mark.slow
def test_a_black_hole_to_one_peer_is_the_link(spaces: Namespaces, controller: Controller) -> None:
    spaces.cut_link("a", "b")
    controller.ask("a", "b", syndrome=Syndrome.COMMUNICATION_HANG)

    found = answered(controller)

    assert named(found) == (Part.LINK, ["a", "b"], Origin.NODE)
    assert "no answer" in found.shown[-1]
