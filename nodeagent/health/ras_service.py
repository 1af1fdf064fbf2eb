"""Reader of NCCL's RAS service on this node: ranks here that are gone, or that the others of their job wait for."""

import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

import structlog

from cluster.clock import Clock
from health.records.frames import Evidence, Source
from health.verdicts.ras import RasStatus, ras_status, ras_verdict
from health.verdicts.verdict import Syndrome
from nodeagent.loops import AgentLoop

log = structlog.get_logger(__name__)
EVERY_S = 15.0
HANGS_S = 300.0
"""Time in which nothing is launched after which a job hangs: RAS knows no phases, and a checkpoint may take minutes."""
PATIENCE_S = 8.0
"""Seconds for an answer: the service itself gives processes that do not answer five."""
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of one answer: half a kilobyte for each rank and communicator."""
_ASKS = (b"CLIENT PROTOCOL 2\n", b"SET FORMAT json\n")
"""What is sent before the question, and answered by a line each. Source: NCCL 2.28, src/ras/client.cc."""


def asked(host: str, port: int, patience_s: float = PATIENCE_S) -> object:
    """The service's answer. Raises OSError or ValueError: nobody listens, as between jobs, or who does is another."""
    ends_s = time.monotonic() + patience_s
    with closing(socket.create_connection((host, port), patience_s)) as line:
        for words in _ASKS:
            line.sendall(words)
            got = b""
            while not got.endswith(b"\n") and len(got) < 1024:
                got += _more(line, ends_s)
            if not got.startswith((b"SERVER PROTOCOL", b"OK")):
                raise ValueError(f"it answers {got[:80]!r}: JSON needs NCCL 2.28")
        line.sendall(b"STATUS\n")
        parts: list[bytes] = []
        while sum(map(len, parts)) <= MOST_BYTES:
            try:
                parts.append(_more(line, ends_s))
            except EOFError:
                return json.loads(b"".join(parts))
    raise ValueError("its answer is too long")


def _more(line: socket.socket, ends_s: float) -> bytes:
    line.settimeout(max(ends_s - time.monotonic(), 0.001))
    got = line.recv(1 << 16)
    if not got:
        raise EOFError("it ended the connection")
    return got


def is_own(host: str) -> bool:
    """Whether an address is one of this node's."""
    with suppress(OSError), socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as at:
        at.bind((host, 0))
        return True
    return False


class RasService:
    """Evidence of one service (`HostEvidence`), read in a thread of its own."""

    def __init__(self, ask: Callable[[], object], is_here: Callable[[str], bool], clock: Clock) -> None:
        self._ask, self._is_here, self._clock = ask, is_here, clock
        self._seen: tuple[RasStatus, float] | None = None
        """Newest status that differs from the one before, and when it was first seen."""
        self._found: tuple[tuple[str, str, float], ...] = ()
        """Code, words and since when."""
        self._is_told = False
        self._loop = AgentLoop("RAS", self.look, begin_s=1.0, pause_s=EVERY_S, gives_way=True)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def read(self, now_s: float) -> Sequence[Evidence]:
        return [
            Evidence(Source.PROCESS, code, "NCCL", max(now_s - since_s, 0.0), words)
            for code, words, since_s in self._found
        ]

    def look(self) -> float:
        """Asks once. Returns seconds until the next time."""
        try:
            status = ras_status(self._ask())
            if status is None:
                raise ValueError("its answer has no communicators")
        except (OSError, EOFError, ValueError) as error:
            self._seen, self._found = None, ()
            if isinstance(error, ValueError | EOFError) and not self._is_told:
                log.warning("NCCL's RAS service cannot be read", why=str(error)[:200])
                self._is_told = True
            return EVERY_S
        now_s = self._clock()
        if self._seen is None or self._seen[0].counts != status.counts:
            self._seen = status, now_s
        first, since_s = self._seen
        verdict = ras_verdict(status, now_s, first)
        is_due = verdict is not None and verdict.blames and (status.dead or now_s - since_s >= HANGS_S)
        if not is_due or verdict is None or not any(self._is_here(status.host[rank]) for rank in verdict.ranks):
            self._found = ()
            return EVERY_S
        code = "RankLost" if verdict.syndrome is Syndrome.DEAD_PROCESS else "RankBehind"
        begun_s = self._found[0][2] if self._found and self._found[0][0] == code else now_s
        self._found = ((code, "; ".join(verdict.evidence)[:200], begun_s),)
        return EVERY_S
