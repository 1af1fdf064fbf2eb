"""The brain server: beside the head of a Ray cluster it waits for a controller and gives it a brain process.

The controller's pod holds the right to write to the cluster, so it must not be a Ray node: whoever may call Ray may run
code on all of its nodes. It connects here instead, shows that it knows the token, and gets a child process of this
server at the other end of its stream. Nothing that comes back can do more than be read as a plan.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread

import structlog

from controller.brain.launcher import keep_alive
from controller.brain.wire import prove

log = structlog.get_logger(__name__)

PROOF_S = 5.0
AT_A_TIME = 32
"""Connections that may be at their proof; more are refused, so that nobody can fill this process."""

Give = Callable[[socket.socket], Callable[[], None]]
"""Give a stream to a brain of its own; what comes back ends that."""


@dataclass(slots=True)
class BrainServer:
    """One brain at a time: a controller that connects takes the place of the one before it.

    There is one leader. The one before it has died, or lost its Lease and its connection without having noticed yet.
    """

    secret: Callable[[], bytes]
    give: Give
    _proving: int = 0
    _lock: Lock = field(default_factory=Lock)
    _proven: "SimpleQueue[socket.socket | None]" = field(default_factory=SimpleQueue)

    def serve(self, listener: socket.socket) -> None:
        """Until the listener is closed; then the brain that runs is ended."""
        # One thread for all brains, that lives as long as they: the kernel ends a child with the thread that made it.
        giver = Thread(target=self._give_all, name="brains")
        giver.start()
        while True:
            try:
                stream, peer = listener.accept()
            except OSError:
                break
            with self._lock:
                is_full = self._proving >= AT_A_TIME
                self._proving += not is_full
            if is_full:
                stream.close()
                continue
            Thread(target=self._welcome, args=(stream, f"{peer[0]}:{peer[1]}"), daemon=True).start()
        self._proven.put(None)
        giver.join()

    def _welcome(self, stream: socket.socket, peer: str) -> None:
        try:
            stream.settimeout(PROOF_S)
            prove(stream, self.secret(), as_brain=True)
            stream.settimeout(None)
            keep_alive(stream)
        except (OSError, EOFError) as error:
            log.warning("a controller was refused", peer=peer, why=str(error))
            stream.close()
        else:
            log.info("a controller has come", peer=peer)
            self._proven.put(stream)
        finally:
            with self._lock:
                self._proving -= 1

    def _give_all(self) -> None:
        """A brain for each controller that has proven itself, in their order."""
        end: Callable[[], None] | None = None
        while (stream := self._proven.get()) is not None:
            if end is not None:
                end()
                end = None
            with stream:
                try:
                    end = self.give(stream)
                except OSError as error:
                    log.error("no brain could be started", why=str(error))
        if end is not None:
            end()
