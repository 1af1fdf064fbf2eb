"""Driver process: runs background tasks for an operator, by itself or on Ray, and talks to it over a socket.

When a Ray driver loses its cluster, Ray's native code ends its process without an exception. So the driver is a process
of its own, which may die at any moment and is started again. It ends when the operator is gone.
"""

import argparse
import os
import socket
import sys
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event, Lock, Thread

import msgspec

from cluster.errors import TonnageError
from cluster.version import VERSION
from controller.background import wire
from controller.background.on_ray import NICENESS, DriverStart, RayWorkers, Workers
from controller.background.tasks import function_of

ALIVE_EVERY_S = 5.0


class OwnProcess(Workers):
    """Tasks in this process, one after another."""

    runs_on = "one process"

    def __init__(self, registry: str, began: Callable[[str], None]) -> None:
        """began: called with the digest of each task before it runs."""
        super().__init__()
        os.nice(max(0, NICENESS - os.nice(0)))
        self._registry, self._began = registry, began

    def finished(self) -> Iterator[tuple[wire.Done, bytes]]:
        """The result of the next task."""
        kind, digest, inputs = self._waiting.popleft()
        self._began(digest)
        try:
            yield wire.Done(digest), function_of(self._registry, kind)(*inputs)
        except Exception as error:  # noqa: BLE001 - of one task; the others go on
            yield wire.Done(digest, f"{type(error).__name__}: {error}"), b""


class OperatorStream:
    """Stream to the operator, for threads that write to it. Without the operator it ends this process."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream, self._lock = stream, Lock()
        self.workers: Workers | None = None

    def send(self, message: wire.Message, body: bytes = b"") -> None:
        try:
            with self._lock:
                wire.send(self.stream, message, body)
        except OSError:
            os._exit(0)

    def listen(self, to: "SimpleQueue[tuple[wire.Message, bytes]]") -> None:
        """Passes the operator's messages on, also while another thread runs a task or waits for Ray."""
        try:
            while True:
                to.put(wire.receive(self.stream))
        except (EOFError, OSError):
            os._exit(0)

    def tell_alive(self) -> None:
        """Says now and then that the workers answer: a driver whose Ray is frozen is as silent as one that is frozen
        itself. One whose Ray goes on without it ends."""
        pause = Event()
        while not pause.wait(ALIVE_EVERY_S):
            if self.workers is not None and not self.workers.answer():
                sys.stderr.write("Ray has given up the node of this driver\n")
                os._exit(1)
            self.send(wire.Alive())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="file descriptor of the stream to the operator")
    parser.add_argument("--start", required=True, help="DriverStart as JSON")
    given = parser.parse_args(arguments)
    with socket.socket(fileno=given.socket) as stream:
        return serve(OperatorStream(stream), msgspec.json.decode(given.start, type=DriverStart))


def serve(operator: OperatorStream, start: DriverStart) -> int:
    """Runs tasks until the operator is gone. Returns the exit status where it cannot start, or loses its workers."""
    begin, _ = wire.receive(operator.stream)
    if not isinstance(begin, wire.Begin) or begin.version != VERSION:
        theirs = begin.version if isinstance(begin, wire.Begin) else "none"
        words = f"the operator runs Tonnage {theirs}, the driver {VERSION}; run one image everywhere"
        operator.send(wire.StartRefused(words))
        return 1
    Thread(target=operator.tell_alive, name="alive", daemon=True).start()
    try:
        if start.mode == "none":
            workers: Workers = OwnProcess(start.registry, lambda digest: operator.send(wire.Began(digest)))
        else:
            workers = RayWorkers(start)
    except (TonnageError, ConnectionError, RuntimeError, TimeoutError) as error:
        operator.send(wire.StartRefused(f"{type(error).__name__}: {error}"))
        return 1
    operator.workers = workers
    operator.send(wire.Ready(workers.runs_on))
    messages: SimpleQueue[tuple[wire.Message, bytes]] = SimpleQueue()
    Thread(target=operator.listen, args=(messages,), name="operator", daemon=True).start()
    while True:
        while not (workers.is_busy and messages.empty()):
            take(workers, *messages.get())
        try:
            for done, value in workers.finished():
                operator.send(done, value)
        except ConnectionError as error:
            sys.stderr.write(f"{error}\n")
            return 1


def take(workers: Workers, message: wire.Message, body: bytes) -> None:
    """Does what the operator asks for. Raises ConnectionError."""
    match message:
        case wire.Part(digest):
            workers.keep(digest, body)
        case wire.Drop(digest):
            workers.drop(digest)
        case wire.Submit(kind, digest, parts):
            workers.submit(kind, digest, parts)
        case _:
            raise ConnectionError(f"unexpected message from the operator: {type(message).__name__}")


if __name__ == "__main__":
    sys.exit(main())
