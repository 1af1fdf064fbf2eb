"""Preflight of a gang: before training begins, its pods multiply matrices and measure the network between them.

    python -m tonnage.preflight --rank $(JOB_COMPLETION_INDEX) --ranks 16 --meet trainer-0.trainer:29477

An init container of each pod runs it. All meet at rank 0, which gives the orders and judges what is measured. With a
fault all of them end with status 1, and the node's agent hears who is accused. Who does not come is named, and accused
of nothing. Needs the standard library alone; torch, where it is installed, multiplies on each GPU.
"""

import argparse
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import eq
from statistics import median
from typing import Any

from tonnage import probe_wire, records
from tonnage.pairs import SLOW_SHARE, Pair, PairSpeed, bad_pairs, rounds_of
from tonnage.recorder import AgentSocket
from tonnage.records import Fault, Kind

PRODUCT_S = 1.0
"""Time in which a device multiplies."""
SLOW_ON_PROCESSOR = 0.5
"""Speed below which a processor is accused: it has other work as well. Chosen."""
MOST_ROUNDS = 8
"""Rounds in which each rank is measured with another at most: to name a NIC takes two."""
ROUND_S = probe_wire.PAIR_S + 2.0
MOST_BAD_SHARE = 1 / 3
"""Share of bad pairs from which on the network as a whole is uneven, and nobody is accused of it. Chosen."""
LINK_SHARE = 0.5
"""Speed of a path below which it is accused: switches share cables out, so that some are slower than others. Chosen."""
LINGER_S = 1.0
"""Time that a process lives on after its last word: the node's agent looks up whose it was."""
Order = Mapping[str, Any]
FEWEST = 3
"""Devices of a kind without which nobody knows what is usual."""
PROCESSOR = "processor"
_MULTIPLY = {"do": "multiply"}


@dataclass(frozen=True, slots=True)
class Found:
    """A fault: of a rank's device or network, or of the link between two ranks."""

    fault: Fault
    rank: int
    peer: int = records.NO_PEER
    share: float = 0.0
    """Speed as a share of what is usual; 0 for none."""

    @property
    def percent(self) -> int:
        return min(int(100 * self.share), 255)

    def __str__(self) -> str:
        name = f"rank {self.rank}" + (f" and rank {self.peer}" if self.fault is Fault.LINK else "")
        what = {Fault.DEVICE: "matrix products", Fault.NIC: "network", Fault.LINK: "the path between them"}[self.fault]
        return f"{name}: {what} at {self.percent} % of what is usual"


def products() -> dict[str, list[float]]:
    """Products a second of each device of this pod, by the kind of device; 0 for one whose product is wrong."""
    try:
        import torch
    except ImportError:
        row = [[float(a * b % 7) for b in range(40)] for a in range(40)]
        return {_processor(): [_speed(lambda: [[sum(map(float.__mul__, a, b)) for b in row] for a in row])]}
    if not torch.cuda.is_available():
        matrix = torch.rand(256, 256)
        return {f"{_processor()}, torch": [_speed(lambda: matrix @ matrix, torch.equal)]}
    found: dict[str, list[float]] = {}
    for number in range(torch.cuda.device_count()):
        matrix = torch.rand(4096, 4096, device=f"cuda:{number}", dtype=torch.bfloat16)

        def several(matrix: Any = matrix, number: int = number) -> Any:
            for _ in range(16):
                made = matrix @ matrix
            torch.cuda.synchronize(number)
            return made

        found.setdefault(torch.cuda.get_device_name(number), []).append(_speed(several, torch.equal))
    return found


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
        return f"{PROCESSOR} {next(names, '')}"


def _speed(multiply: Callable[[], Any], is_equal: Callable[[Any, Any], bool] = eq) -> float:
    """Products a second; 0 where two of the same matrices differ."""
    first, count, began_s = multiply(), 0, time.monotonic()
    while (lasted_s := time.monotonic() - began_s) < PRODUCT_S:
        count += 1
        if not is_equal(first, multiply()):
            return 0.0
    return count / lasted_s


def slow_devices(speeds: Mapping[int, Mapping[str, Sequence[float]]]) -> list[Found]:
    """Ranks with a device slower than others of its kind, of which there are three at least. speeds: by rank."""
    of_kind: dict[str, list[float]] = {}
    for kind, alike in (pair for own in speeds.values() for pair in own.items()):
        of_kind.setdefault(kind, []).extend(alike)
    found = []
    for rank, own in sorted(speeds.items()):
        for kind, alike in own.items():
            slowest = min(alike)
            usual = median(of_kind[kind]) if len(of_kind[kind]) >= FEWEST else slowest
            share = slowest / usual if usual else slowest  # a wrong product counts without others of its kind, too
            if share < (SLOW_ON_PROCESSOR if kind.startswith(PROCESSOR) else SLOW_SHARE):
                found.append(Found(Fault.DEVICE, rank, share=share))
    return found


def slow_paths(measured: Mapping[Pair, PairSpeed]) -> list[Found]:
    """Ranks of which every pair is bad, two at least, and pairs of two ranks that are sound with others."""
    bad = bad_pairs(measured, ())
    if len(bad) > MOST_BAD_SHARE * len(measured):
        return []
    sound = [each.bytes_per_s for pair, each in measured.items() if pair not in bad]

    def share(pairs: Iterable[Pair]) -> float:
        return max(measured[pair].bytes_per_s for pair in pairs) / median(sound)

    found: list[Found] = []
    left = set(measured)
    while True:
        of = {name: [pair for pair in left if name in pair] for pair in left & bad for name in pair}
        named = [name for name, own in of.items() if len(own) > 1 and bad.issuperset(own)]
        if not named:
            break
        worst = max(named, key=lambda name: (len(of[name]), name))
        found.append(Found(Fault.NIC, int(worst), share=share(of[worst])))
        left.difference_update(of[worst])
    links = [Found(Fault.LINK, int(a), int(b), share([(a, b)])) for a, b in sorted(left & bad)
             if all(set(of[name]) - bad for name in (a, b))]  # fmt: skip
    return [*found, *(each for each in links if each.share < LINK_SHARE)]


def tournament(ranks: int) -> list[list[tuple[int, int]]]:
    """Rounds in which each rank meets each other once, and none two at once: one stays, the others move round."""
    seats = [*range(ranks), *([-1] if ranks % 2 else [])]
    made = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats, reversed(seats), strict=True)
        made.append([(max(a, b), min(a, b)) for a, b in list(pairs)[: len(seats) // 2] if min(a, b) >= 0])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return made


class Meeting:
    """Rank 0's connections to all, itself included. Each order is answered by a line of JSON."""

    def __init__(self, port: int, ranks: int) -> None:
        self._listener, self._ranks = _listening(port), ranks
        self._lines: dict[int, Any] = {}
        self._opened: dict[int, socket.socket] = {}
        self._at: dict[int, tuple[str, int]] = {}
        """Where others measure each rank."""
        self.gone: set[int] = set()
        """Ranks that have ended: accused of nothing, since anybody may have stopped them."""

    def gather(self, until_s: float) -> list[int]:
        """Waits for all ranks; those that have not come."""
        while len(self._at) < self._ranks and (left_s := until_s - time.monotonic()) > 0:
            self._listener.settimeout(left_s)
            with suppress(OSError, ValueError, KeyError, TypeError):
                opened, address = self._listener.accept()
                opened.settimeout(probe_wire.HANDSHAKE_S)
                line = opened.makefile("rwb")
                said = json.loads(line.readline(1 << 16))
                rank = int(said["rank"])
                if 0 <= rank < self._ranks:
                    self._at[rank] = said["host"] or address[0], int(said["port"])
                    self._lines[rank], self._opened[rank] = line, opened
        return sorted(set(range(self._ranks)) - self._at.keys())

    def ask(self, orders: Mapping[int, Order], within_s: float) -> dict[int, Any]:
        """What each rank answers; without those that have ended, or do not answer within the time."""
        until_s, answers = time.monotonic() + within_s, {}
        for rank, order in orders.items():
            with suppress(OSError):
                _say(self._lines[rank], order)
        for rank in orders:
            self._opened[rank].settimeout(max(until_s - time.monotonic(), 0.01))
            with suppress(TimeoutError, ValueError):
                try:
                    text = self._lines[rank].readline(1 << 20)
                except ConnectionError:
                    text = b""
                if text:
                    answers[rank] = json.loads(text)
                else:
                    self.gone.add(rank)
        return answers

    def judged(self, until_s: float) -> list[Found]:
        """Has all multiply, and then measure each other for as long as there is time."""
        everyone = range(self._ranks)
        speeds = self.ask(dict.fromkeys(everyone, _MULTIPLY), (until_s - time.monotonic()) / 3)
        if slow_devices({rank: own for rank, own in speeds.items() if own}):  # the better of two measurements counts
            for rank, own in self.ask(dict.fromkeys(everyone, _MULTIPLY), (until_s - time.monotonic()) / 3).items():
                first = speeds.setdefault(rank, {})
                first |= {kind: list(map(max, each, first.get(kind, each))) for kind, each in own.items()}
        found = slow_devices({rank: own for rank, own in speeds.items() if own})
        # It answers nothing, and has not ended: its device hangs, or failed.
        found += [Found(Fault.DEVICE, rank) for rank in everyone if not speeds.get(rank) and rank not in self.gone]
        measured: dict[Pair, PairSpeed] = {}
        rounds = tournament(self._ranks)[:MOST_ROUNDS]
        again = False
        while rounds and until_s - time.monotonic() > ROUND_S:
            self._measure(rounds.pop(0), measured)
            if not rounds and not again:
                again, bad = True, sorted(bad_pairs(measured, ()))
                rounds = [[(int(a), int(b)) for a, b in each] for each in rounds_of(bad)]
        return [*found, *slow_paths(measured)]

    def _measure(self, pairs: Sequence[tuple[int, int]], measured: dict[Pair, PairSpeed]) -> None:
        """Measures these at once; the better of two measurements counts."""
        orders: dict[int, Order] = {}
        for a, b in pairs:
            token = secrets.token_hex(16)
            orders |= {a: {"do": "measure", "at": self._at[b], "token": token}, b: {"do": "admit", "token": token}}
        answers = self.ask(orders, ROUND_S)
        for a, b in pairs:
            said, pair = answers.get(a), (str(a), str(b))
            if not said or (said["failure"] and said["failure"] not in probe_wire.LOST):
                continue
            rate = min(said["out_bytes_per_s"], said["in_bytes_per_s"])
            made = PairSpeed(said["rtt_s"], rate, lost=bool(said["failure"]))
            if pair not in measured or made.bytes_per_s > measured[pair].bytes_per_s:
                measured[pair] = made

    def tell(self, words: str) -> None:
        """Ends it for all. words: why it failed; empty where it did not."""
        self.ask({rank: {"do": "end", "words": words} for rank in self._at}, probe_wire.HANDSHAKE_S)
        self._listener.close()


def take_part(meet: tuple[str, int], rank: int, until_s: float, within_s: float) -> str:
    """Does what rank 0 orders until it says why it failed, or nothing. Raises OSError when it is not heard."""
    host, port = meet
    while True:
        try:
            opened = socket.create_connection((host, port), probe_wire.CONNECT_S)
            break
        except OSError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(probe_wire.AGAIN_S)
    with _listening(0) as listener, opened, opened.makefile("rwb") as line:
        # Others reach rank 0 where they meet it.
        _say(line, {"rank": rank, "host": "" if rank else host, "port": listener.getsockname()[1]})
        while True:
            opened.settimeout(max(until_s - time.monotonic(), 0.0) + within_s)
            if not (text := line.readline(1 << 20)):
                raise ConnectionResetError("rank 0 ended")
            order = json.loads(text)
            if order["do"] == "multiply":
                _say(line, _tried(products))
            elif order["do"] == "measure":
                at, token = order["at"], bytes.fromhex(order["token"])
                _say(line, asdict(probe_wire.measured_with(at[0], at[1], token)))
            elif order["do"] == "admit":
                _admit(listener, bytes.fromhex(order["token"]))
                _say(line, {})
            else:
                _say(line, {})
                return str(order["words"])


def _tried(of: Callable[[], dict[str, list[float]]]) -> dict[str, list[float]]:
    """Empty where a device fails: its driver may raise anything."""
    try:
        return of()
    except Exception as error:  # noqa: BLE001 - see above
        sys.stderr.write(f"preflight: the matrix product failed: {error}\n")
        return {}


def _admit(listener: socket.socket, token: bytes) -> None:
    """Serves the one peer that knows the token."""
    until_s = time.monotonic() + probe_wire.PAIR_S
    while (left_s := until_s - time.monotonic()) > 0:
        listener.settimeout(left_s)
        with suppress(OSError, probe_wire.ProbeError), listener.accept()[0] as peer:
            probe_wire.prepare(peer)
            probe_wire.admitted(peer, (token,))
            probe_wire.serve(peer, until_s)
            return


def _listening(port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=both)


def _say(line: Any, what: Mapping[str, Any]) -> None:
    line.write(json.dumps(what).encode() + b"\n")
    line.flush()


def report(send: Callable[[bytes], None], rank: int, ranks: int, found: Iterable[Found] = ()) -> None:
    """Tells the node's agent who takes part here, and what was found. Without an agent nobody is told."""
    said = [
        records.packed(Kind.PREFLIGHT, op=each.fault, seq=each.rank, peer=each.peer, step=ranks, size=each.percent)
        for each in (Found(Fault.NONE, rank), *found)
    ][: records.FRAME_RECORDS]
    at_ns = time.monotonic_ns()
    before = {"at_ns": at_ns, "wall_minus_ns": time.time_ns() - at_ns, "incarnation": 0, "dropped": 0}
    with suppress(OSError):
        send(records.frame(said, rank=rank, **before))


def main(words: Sequence[str] | None = None) -> int:
    """Exit status: 0 where nothing was found, 1 otherwise."""
    options = argparse.ArgumentParser(prog="python -m tonnage.preflight", description=__doc__.splitlines()[0])
    options.add_argument("--rank", type=int, required=True, help="number of this pod, from 0")
    options.add_argument("--ranks", type=int, required=True, help="pods of the gang")
    options.add_argument("--meet", required=True, help="HOST:PORT of rank 0")
    options.add_argument("--wait", type=float, default=600.0, help="seconds until all have come (600)")
    options.add_argument("--within", type=float, default=60.0, help="seconds from then on (60)")
    options.add_argument("--warn", action="store_true", help="say what is found and begin nevertheless")
    options.add_argument("--socket", default=os.environ.get("TONNAGE_RECORDER_SOCKET", "/run/tonnage/recorder.sock"))
    given = options.parse_args(words)
    with suppress(ImportError):
        import torch  # noqa: F401 - it takes seconds, which are not to count
    host, _, port = given.meet.rpartition(":")
    send, until_s = AgentSocket(given.socket), time.monotonic() + given.wait
    found: list[Found] = []
    if given.rank == 0:
        meeting = Meeting(int(port), given.ranks)

        def lead() -> None:
            if missing := meeting.gather(until_s):
                meeting.tell(f"did not come within {given.wait:.0f} s: rank {', '.join(map(str, missing))}")
                return
            found.extend(meeting.judged(time.monotonic() + given.within))
            meeting.tell("; ".join([*map(str, found), *(f"rank {rank} has ended" for rank in sorted(meeting.gone))]))

        threading.Thread(target=lead, daemon=True).start()
    began_s = time.monotonic()
    try:
        why = take_part((host, int(port)), given.rank, until_s, given.within)
    except OSError as error:
        why = f"rank 0 at {given.meet} is not heard: {error}"
    time.sleep(max(LINGER_S - (time.monotonic() - began_s), 0.0))  # a younger process is not believed to be this pod's
    report(send, given.rank, given.ranks, found)
    time.sleep(LINGER_S)
    sys.stdout.write(f"preflight of {given.ranks} ranks: {why or 'nothing found'}\n")
    return int(bool(why) and not given.warn)


if __name__ == "__main__":
    sys.exit(main())
