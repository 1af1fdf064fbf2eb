"""Preflight of a gang: before training begins, its pods multiply matrices and measure the network between them.

    python -m tonnage.preflight --ranks 16

An init container of each pod runs it. Its rank and where all meet follow from what the pod is called, or are said with
`--rank 3 --meet trainer-0.trainer:29477`. Rank 0 gives the orders and judges what is measured. Where it accuses anybody
all end with status 1, and the node's agent hears whom. Who does not come, or ends, is named and accused of nothing.
Needs the standard library alone; torch, where it is installed, multiplies on each GPU.
"""

import argparse
import json
import os
import re
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
from tonnage.records import AccusedPart, Kind

PORT = 29477
PRODUCT_S = 1.0
"""Time in which a device multiplies."""
FEWEST = 3
"""Devices of a kind without which nobody knows what is usual."""
PROCESSOR, SLOW_ON_PROCESSOR = "processor", 0.5
"""Speed below which a processor is accused: it has other work as well. Chosen."""
LINK_SHARE = 0.5
"""Speed of a path below which it is accused: switches share cables out, so that some are slower than others. Chosen."""
MOST_BAD_SHARE = 1 / 3
"""Share of bad pairs above which the network as a whole is uneven, and nobody is accused of it. Chosen."""
MOST_ROUNDS = 8
"""Others that each rank is measured with at most: to name its network takes two."""
ROUND_S = probe_wire.PAIR_S + 2.0
LINGER_S = 1.0
"""Time that a process lives before and after its word: younger ones, and those that are gone, are not heard."""
LONGEST = 1 << 20
"""Bytes of an answer."""
Speeds = Mapping[str, Sequence[float]]
"""Products a second of each device of a pod, by the kind of device; 0 for one whose product is wrong."""


@dataclass(frozen=True, slots=True)
class Accused:
    """A rank's device or network, or the path between two ranks."""

    part: AccusedPart
    rank: int
    peer: int = records.NO_PEER
    share: float = 0.0
    """Speed as a share of what is usual; 0 for none."""

    @property
    def percent(self) -> int:
        return min(int(100 * self.share), 255)

    def __str__(self) -> str:
        what = {
            AccusedPart.DEVICE: f"rank {self.rank}: matrix products",
            AccusedPart.NIC: f"rank {self.rank}: network",
            AccusedPart.LINK: f"rank {self.rank} and rank {self.peer}: the path between them",
        }
        return f"{what[self.part]} at {self.percent} % of what is usual"


def products() -> Speeds:
    """What the devices of this pod do."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
        processor = f"{PROCESSOR} {next(models, '')}"
    try:
        import torch
    except ImportError:
        rows = [[float(a * b % 7) for b in range(40)] for a in range(40)]
        return {processor: [_speed(lambda: [[sum(map(float.__mul__, a, b)) for b in rows] for a in rows], eq)]}
    if not torch.cuda.is_available():
        matrix = torch.rand(256, 256)
        return {f"{processor}, torch": [_speed(lambda: matrix @ matrix, torch.equal)]}
    found: dict[str, list[float]] = {}
    for number in range(torch.cuda.device_count()):
        matrix = torch.rand(4096, 4096, device=f"cuda:{number}", dtype=torch.bfloat16)

        def several(matrix: Any = matrix, number: int = number) -> Any:
            made = [matrix @ matrix for _ in range(16)]
            torch.cuda.synchronize(number)
            return made[-1]

        found.setdefault(torch.cuda.get_device_name(number), []).append(_speed(several, torch.equal))
    return found


def _speed(multiply: Callable[[], Any], is_equal: Callable[[Any, Any], bool]) -> float:
    """Products a second; 0 where two of the same matrices differ."""
    first, count, began_s = multiply(), 0, time.monotonic()
    while (lasted_s := time.monotonic() - began_s) < PRODUCT_S:
        count += 1
        if not is_equal(first, multiply()):
            return 0.0
    return count / lasted_s


def slow_devices(speeds: Mapping[int, Speeds]) -> list[Accused]:
    """Ranks with a device slower than others of its kind. speeds: by rank."""
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
                found.append(Accused(AccusedPart.DEVICE, rank, share=share))
    return found


def slow_paths(measured: Mapping[Pair, PairSpeed]) -> list[Accused]:
    """Ranks of which every pair is bad, two at least, and paths of two ranks that are sound with others."""
    bad = bad_pairs(measured, ())
    if len(bad) > MOST_BAD_SHARE * len(measured):
        return []
    usual = median([each.bytes_per_s for pair, each in measured.items() if pair not in bad] or [1.0])
    found: list[Accused] = []
    left = set(measured)
    while True:
        of = {name: [pair for pair in left if name in pair] for pair in left & bad for name in pair}
        named = [name for name, own in of.items() if len(own) > 1 and bad.issuperset(own)]
        if not named:
            break
        worst = max(named, key=lambda name: (len(of[name]), name))
        share = max(measured[pair].bytes_per_s for pair in of[worst]) / usual
        found.append(Accused(AccusedPart.NIC, int(worst), share=share))
        left.difference_update(of[worst])
    for a, b in sorted(left & bad):
        share = measured[a, b].bytes_per_s / usual
        if share < LINK_SHARE and all(set(of[name]) - bad for name in (a, b)):
            found.append(Accused(AccusedPart.LINK, int(a), int(b), share))
    return found


def tournament(ranks: int) -> list[list[tuple[int, int]]]:
    """Rounds in which each rank meets each other once, and none two at once: one stays, the others move round."""
    seats = [*range(ranks), *([-1] if ranks % 2 else [])]
    made = []
    for _ in range(len(seats) - 1):
        pairs = list(zip(seats, reversed(seats), strict=True))[: len(seats) // 2]
        made.append([(max(pair), min(pair)) for pair in pairs if min(pair) >= 0])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return made


class Meeting:
    """Rank 0's connections to all, itself included. Each order is answered by a line of JSON."""

    def __init__(self, port: int, ranks: int) -> None:
        self._listener, self._ranks = _listening(port), range(ranks)
        self._lines: dict[int, tuple[socket.socket, Any]] = {}
        self._at: dict[int, tuple[str, int]] = {}
        """Where others measure each rank."""
        self.gone: set[int] = set()
        """Ranks that have ended: anybody may have stopped them."""

    def gather(self, until_s: float) -> list[int]:
        """Waits for all ranks; those that have not come."""
        while len(self._at) < len(self._ranks) and (left_s := until_s - time.monotonic()) > 0:
            self._listener.settimeout(left_s)
            with suppress(OSError, ValueError, KeyError, TypeError):
                opened, address = self._listener.accept()
                opened.settimeout(probe_wire.HANDSHAKE_S)
                line = opened.makefile("rwb")
                said = json.loads(line.readline(LONGEST))
                if said["rank"] in self._ranks:
                    self._at[said["rank"]] = said["host"] or address[0], int(said["port"])
                    self._lines[said["rank"]] = opened, line
        return [rank for rank in self._ranks if rank not in self._at]

    def ask(self, orders: Mapping[int, Any], within_s: float) -> dict[int, Any]:
        """What each rank answers; without those that have ended, or do not answer within the time."""
        until_s, answers = time.monotonic() + within_s, {}
        for rank, order in orders.items():
            with suppress(OSError):
                _say(self._lines[rank][1], order)
        for rank in orders:
            opened, line = self._lines[rank]
            opened.settimeout(max(until_s - time.monotonic(), 0.01))
            with suppress(TimeoutError, ValueError):
                try:
                    text = line.readline(LONGEST)
                except ConnectionError:
                    text = b""
                if text:
                    answers[rank] = json.loads(text)
                else:
                    self.gone.add(rank)
        return answers

    def judged(self, until_s: float) -> list[Accused]:
        """Has all multiply, and then measure each other for as long as there is time."""
        speeds: dict[int, dict[str, list[float]]] = {}
        for _ in range(2):  # what is slow is measured again, and the better counts
            third_s = (until_s - time.monotonic()) / 3
            for rank, own in self.ask(dict.fromkeys(self._ranks, ("multiply",)), third_s).items():
                first = speeds.setdefault(rank, {})
                first |= {kind: list(map(max, each, first.get(kind, each))) for kind, each in own.items()}
            if not slow_devices(speeds):
                break
        # Who answers nothing, and has not ended: its device hangs, or failed.
        failed = [rank for rank in self._ranks if not speeds.get(rank) and rank not in self.gone]
        measured: dict[Pair, PairSpeed] = {}
        rounds, twice = tournament(len(self._ranks))[:MOST_ROUNDS], set[Pair]()
        again = False
        while rounds and until_s - time.monotonic() > ROUND_S:
            pairs = rounds.pop(0)
            self.measure(pairs, measured)
            if again:
                twice.update((str(a), str(b)) for a, b in pairs)
            elif not rounds:
                again = True
                rounds = [[(int(a), int(b)) for a, b in each] for each in rounds_of(sorted(bad_pairs(measured, ())))]
        for pair in bad_pairs(measured, ()) - twice:  # what was measured once accuses nobody
            del measured[pair]
        return [*(Accused(AccusedPart.DEVICE, rank) for rank in failed), *slow_devices(speeds), *slow_paths(measured)]

    def measure(self, pairs: Sequence[tuple[int, int]], measured: dict[Pair, PairSpeed]) -> None:
        """Measures these at once; the better of two measurements counts."""
        orders: dict[int, Any] = {}
        for a, b in pairs:
            token = secrets.token_hex(16)
            orders |= {a: ("measure", *self._at[b], token), b: ("admit", token)}
        answers = self.ask(orders, ROUND_S)
        for a, b in pairs:
            if (said := answers.get(a)) and said["failure"] in ("", *probe_wire.LOST):
                rate = min(said["out_bytes_per_s"], said["in_bytes_per_s"])
                made, pair = PairSpeed(said["rtt_s"], rate, lost=bool(said["failure"])), (str(a), str(b))
                if pair not in measured or made.bytes_per_s > measured[pair].bytes_per_s:
                    measured[pair] = made

    def lead(self, given: argparse.Namespace, found: list[Accused]) -> None:
        """From the meeting to its end, of which all are told why it failed, or nothing."""
        why = []
        if missing := self.gather(time.monotonic() + given.wait):
            why = [f"did not come within {given.wait:.0f} s: rank {', '.join(map(str, missing))}"]
        else:
            found += self.judged(time.monotonic() + given.within)
            why = [*map(str, found), *(f"rank {rank} has ended" for rank in sorted(self.gone))]
        self.ask({rank: ("end", "; ".join(why)) for rank in self._at}, probe_wire.HANDSHAKE_S)
        self._listener.close()


def take_part(meet: tuple[str, int], rank: int, until_s: float, within_s: float) -> str:
    """Does what rank 0 orders until it says why it failed, or nothing. Raises OSError when it is not heard."""
    while True:
        try:
            opened = socket.create_connection(meet, probe_wire.CONNECT_S)
            break
        except OSError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(probe_wire.AGAIN_S)
    with _listening(0) as listener, opened, opened.makefile("rwb") as line:
        # Others reach rank 0 where they meet it.
        _say(line, {"rank": rank, "host": "" if rank else meet[0], "port": listener.getsockname()[1]})
        while True:
            opened.settimeout(max(until_s - time.monotonic(), 0.0) + within_s)
            if not (text := line.readline(LONGEST)):
                raise ConnectionResetError("rank 0 has ended")
            answer: Any = {}
            match json.loads(text):
                case ["multiply"]:
                    try:
                        answer = products()
                    except Exception as error:  # noqa: BLE001 - a device that fails raises whatever its driver has
                        sys.stderr.write(f"preflight: the matrix product failed: {error}\n")
                case ["measure", host, port, token]:
                    answer = asdict(probe_wire.measured_with(host, port, bytes.fromhex(token)))
                case ["admit", token]:  # the one peer that knows it
                    served_s, served = time.monotonic() + probe_wire.PAIR_S, False
                    while not served and (left_s := served_s - time.monotonic()) > 0:
                        listener.settimeout(left_s)
                        with suppress(OSError, probe_wire.ProbeError), listener.accept()[0] as peer:
                            probe_wire.prepare(peer)
                            served = bool(probe_wire.admitted(peer, (bytes.fromhex(token),)))
                            probe_wire.serve(peer, served_s)
                case [_, why]:
                    _say(line, answer)
                    return str(why)
            _say(line, answer)


def _listening(port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=both)


def _say(line: Any, what: object) -> None:
    line.write(json.dumps(what).encode() + b"\n")
    line.flush()


def report(send: Callable[[bytes], None], rank: int, ranks: int, found: Iterable[Accused] = ()) -> None:
    """Tells the node's agent who takes part here, and who is accused. Without an agent nobody is told."""
    said = [
        records.packed(Kind.PREFLIGHT, op=each.part, seq=each.rank, peer=each.peer, step=ranks, size=each.percent)
        for each in (Accused(AccusedPart.NOBODY, rank), *found)
    ][: records.FRAME_RECORDS]
    at_ns = time.monotonic_ns()
    before = {"at_ns": at_ns, "wall_minus_ns": time.time_ns() - at_ns, "incarnation": 0, "dropped": 0}
    with suppress(OSError):
        send(records.frame(said, rank=rank, **before))


def place_of(host: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Rank, ranks and meeting place as far as a pod knows them from its kind.

    host: with its domain. Pods of an indexed Job, a JobSet or a StatefulSet are numbered, and have a domain where their
    spec has a subdomain; a LeaderWorkerSet says all in variables.
    """
    known = {"ranks": environment.get("LWS_GROUP_SIZE"), "rank": environment.get("LWS_WORKER_INDEX")}
    leader = environment.get("LWS_LEADER_ADDRESS")
    if not leader and (found := re.fullmatch(r"(.*-)([0-9]+)(\..+)", host)):
        leader, known["rank"] = f"{found[1]}0{found[3]}", found[2]
    return {name: each for name, each in {**known, "meet": leader and f"{leader}:{PORT}"}.items() if each}


def main(words: Sequence[str] | None = None) -> int:
    """Exit status: 0 where nobody is accused and all were there, 1 otherwise."""
    options, known = argparse.ArgumentParser(prog="python -m tonnage.preflight"), place_of(socket.getfqdn(), os.environ)
    said = {"rank": "number of this pod, from 0", "ranks": "pods of the gang", "meet": "HOST:PORT of rank 0"}
    for name, what in said.items():
        kind = str if name == "meet" else int
        options.add_argument(f"--{name}", type=kind, default=known.get(name), required=name not in known, help=what)
    options.add_argument("--wait", type=float, default=600.0, help="seconds until all have come (600)")
    options.add_argument("--within", type=float, default=60.0, help="seconds from then on (60)")
    options.add_argument("--warn", action="store_true", help="say what is found, and begin nevertheless")
    options.add_argument("--socket", default=os.environ.get("TONNAGE_RECORDER_SOCKET", "/run/tonnage/recorder.sock"))
    given = options.parse_args(words)
    with suppress(ImportError):
        import torch  # noqa: F401 - it takes seconds, which are not to count
    host, _, port = given.meet.rpartition(":")
    began_s = time.monotonic()
    found: list[Accused] = []
    if given.rank == 0:
        meeting = Meeting(int(port), given.ranks)
        threading.Thread(target=meeting.lead, args=(given, found), daemon=True).start()
    try:
        why = take_part((host, int(port)), given.rank, began_s + given.wait, given.within)
    except OSError as error:
        why = f"rank 0 at {given.meet} is not heard: {error}"
    time.sleep(max(LINGER_S - (time.monotonic() - began_s), 0.0))
    report(AgentSocket(given.socket), given.rank, given.ranks, found)
    time.sleep(LINGER_S)
    sys.stdout.write(f"preflight of {given.ranks} ranks: {why or 'nothing found'}\n")
    return int(bool(why) and not given.warn)


if __name__ == "__main__":
    sys.exit(main())
