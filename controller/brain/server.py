"""Brain server: runs beside the head of a Ray cluster and starts a brain process for the controller that connects.

The controller's pod has the right to write to the cluster, so it must not be a Ray node: a caller of Ray may run code
on all of its nodes. It connects to this server instead, proves that it knows the token, and gets a child process of the
server at the other end of its stream. Data that comes back is only read as a plan.
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
"""Most connections that may be proving their token at once; more are refused, so that no client can exhaust this
process."""

Give = Callable[[socket.socket], Callable[[], None]]
"""Function that gives a stream to a new brain; it returns a function that ends that brain."""


@dataclass(slots=True)
class BrainServer:
    """Server of one brain at a time: a controller that connects replaces the previous one.

    There is one leader. The previous one has died, or has lost its Lease and its connection without noticing yet.
    """

    secret: Callable[[], bytes]
    give: Give
    _proving: int = 0
    _lock: Lock = field(default_factory=Lock)
    _proven: "SimpleQueue[socket.socket | None]" = field(default_factory=SimpleQueue)

    def serve(self, listener: socket.socket) -> None:
        """Serves until the listener is closed; then ends the running brain."""
        # One thread for all brains that outlives them: the kernel ends a child with the thread that created it.
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
            log.info("a controller connected", peer=peer)
            self._proven.put(stream)
        finally:
            with self._lock:
                self._proving -= 1

    def _give_all(self) -> None:
        """Starts a brain for each controller that has proven its token, in their order."""
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
