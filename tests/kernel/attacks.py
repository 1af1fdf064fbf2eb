"""Tool calls of one pod, timed by the guest's clock while another pod attacks the node agent.

`python -m benchmarks run sandbox-attacks` goes through each attack and two references: `calm`, where the other pod does
nothing, and `busy`, where it computes. The guest has one CPU, of which the other pod may take its share without any
attack: what an attack does beyond that is the difference from `busy`.
"""

import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from tests.kernel.node import FOLDER, Node, begin_in_pod, hog, in_pod, result_of, running_node
from tests.kernel.test_sandbox_attacks import BOMB, FORGED
from tonnage import sandbox

ENOUGH = FOLDER / "enough"
CALL_S = 0.2
CALLS = {
    "waits": ["/bin/sleep", str(CALL_S)],
    "computes": [sys.executable, "-S", "-c", "import time\nwhile time.process_time() < 0.1: pass"],
}
"""A call that waits, as most of a call's time is spent, and one that computes for 0.1 s."""


def calm() -> None:
    time.sleep(0.05)


def busy() -> None:
    sum(range(100_000))


def forged() -> None:
    """Packets that are no requests, each on a connection of its own."""
    for packet in FORGED:
        _asked(packet.encode())


def flood() -> None:
    """Requests as fast as they go."""
    _asked(b'{"type":"ask","mem":-1}')


def silent() -> None:
    """All connections that a pod may have, held until the agent ends them."""
    lines = []
    for _ in range(80):
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(0.05)
        with suppress(OSError):
            line.connect(sandbox.socket_path())
        lines.append(line)
    time.sleep(0.5)
    for line in lines:
        line.close()


def bomb() -> None:
    """A call that forks until it is refused, and on."""
    with sandbox.tool("64Mi") as tool:
        tool.start(BOMB)
        time.sleep(1.0)


def outgrow() -> None:
    """A call that takes far more than it declared, again and again."""
    with sandbox.tool("64Mi") as tool:
        tool.run(hog(480, 5))


def leave() -> None:
    """A call that leaves a daemon behind."""
    with sandbox.tool("64Mi") as tool:
        tool.run(["/bin/sh", "-c", "setsid sleep 60 & exit 0"])


ATTACKS: Mapping[str, Callable[[], None]] = {
    each.__name__: each for each in (calm, busy, forged, flood, silent, bomb, outgrow, leave)
}


def _asked(packet: bytes) -> None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.settimeout(0.05)
    with suppress(OSError):
        line.connect(sandbox.socket_path())
        line.send(packet)
        line.recv(8192)
    line.close()


def beside(attack: str, kind: str, calls: int) -> list[float]:
    """Called in the guest: seconds of each of the neighbour's calls, from asking to the verdict."""
    with running_node("a", "b", pids_per_call=40) as made:
        begun = begin_in_pod(made, "a", lambda: _on_and_on(attack))
        try:
            return _timed(made, kind, calls)
        finally:
            ENOUGH.touch()
            result_of(begun)


def _on_and_on(attack: str) -> int:
    times = 0
    while not ENOUGH.exists():
        ATTACKS[attack]()
        times += 1
    return times


def _timed(made: Node, kind: str, calls: int) -> list[float]:
    def neighbour() -> list[float]:
        found = []
        for _ in range(calls):
            began_s = time.monotonic()
            with sandbox.tool("64Mi", 60.0) as tool:
                done = tool.run(CALLS[kind])
            assert (done.returncode, done.verdict.isolated) == (0, True), done.verdict
            found.append(time.monotonic() - began_s)
        return found

    seconds: list[float] = in_pod(made, "b", neighbour)
    return seconds
