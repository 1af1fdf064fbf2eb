"""Brain process: drives Ray for a controller that must not do so itself, and talks to it over a socket.

When a Ray driver loses its cluster, Ray's native code ends its process without an exception. So the driver is a process
of its own, which may die at any moment and is restarted. It ends when the controller is gone.
"""

import argparse
import ctypes
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread, Timer

import msgspec

from cluster.errors import TonnageError
from cluster.frame import FrameError
from cluster.version import VERSION
from controller.brain import wire
from controller.brain.on_ray.pools import BackgroundPool, NoPlan, PlannerPool
from controller.brain.on_ray.ray_start import RayStart, connect
from controller.deciders.pipeline import proposers_of

UP_WITHIN_S = 60.0
"""Seconds for the planners to come up; the controller gives up on the process sooner."""
FAREWELL_S = 3.0
"""Seconds for Ray to stop in order; then the process ends anyway, with all processes that it started."""
IDLE_S = 0.1
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class NewestRequest:
    """Place of the newest request. A request that is replaced before it was taken is answered as `busy`."""

    ready: Condition = field(default_factory=Condition)
    newest: tuple[wire.Ask, bytearray, float] | None = None
    is_over: bool = False

    def put(self, ask: wire.Ask, frame: bytearray, at_s: float) -> wire.Ask | None:
        """Stores a request; returns the one that it replaces."""
        with self.ready:
            before, self.newest = self.newest, (ask, frame, at_s)
            self.ready.notify()
            return before[0] if before else None

    def take(self, within_s: float) -> tuple[wire.Ask, bytearray, float] | None:
        with self.ready:
            self.ready.wait_for(lambda: self.newest or self.is_over, within_s)
            taken, self.newest = self.newest, None
            return taken

    def close(self) -> None:
        with self.ready:
            self.is_over = True
            self.ready.notify()


@dataclass(slots=True)
class ControllerStream:
    """Stream to the controller, for two threads that write to it."""

    stream: socket.socket
    lock: Lock = field(default_factory=Lock)

    def send(self, message: wire.Message, body: bytes = b"") -> None:
        with self.lock:
            wire.send(self.stream, message, body)

    def send_if_open(self, message: wire.Message, body: bytes = b"") -> None:
        """Sends where the controller may be gone: the listening thread notices that, and ends this process."""
        with suppress(OSError):
            self.send(message, body)


def main(arguments: list[str] | None = None) -> int:
    began_s = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="file descriptor of the stream to the controller")
    parser.add_argument("--parent", type=int, required=True, help="process id of the controller")
    parser.add_argument("--start", required=True, help="RayStart as JSON")
    given = parser.parse_args(arguments)
    if not die_with(given.parent):
        return 0
    with socket.socket(fileno=given.socket) as stream:
        return serve(ControllerStream(stream), msgspec.json.decode(given.start, type=RayStart), began_s)


def die_with(parent: int) -> bool:
    """Lets the kernel kill this process when the parent ends; False when the parent has ended already.

    The end of the stream means the same, but a thread that reads it cannot act while native code holds the interpreter.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def serve(line: ControllerStream, start: RayStart, began_s: float) -> int:
    """Connects to Ray, then answers requests until the controller is gone. Returns the exit status."""
    begin, _ = wire.receive(line.stream)
    if not isinstance(begin, wire.Begin) or begin.version != VERSION:
        theirs = begin.version if isinstance(begin, wire.Begin) else "none"
        line.send(
            wire.StartRefused(f"the controller runs Tonnage {theirs}, the brain {VERSION}; run one image everywhere")
        )
        return 1
    try:
        ray = connect(start)
        pool = PlannerPool(ray, begin.decisions, time.monotonic)
        pool.begin(start.planners, UP_WITHIN_S)
    except (TonnageError, ConnectionError, RuntimeError, TimeoutError) as error:
        line.send(wire.StartRefused(f"{type(error).__name__}: {error}"))
        return 1
    nodes = sum(1 for node in ray.nodes() if node["Alive"])
    slots = BackgroundPool(ray, proposers_of(begin.decisions), time.monotonic)
    slots.begin()  # Nothing waits for them: plans come first.
    ready = wire.Ready(VERSION, ray.__version__, nodes, len(pool.posts), time.monotonic() - began_s, pool.processes)
    line.send(ready)
    request = NewestRequest()
    Thread(target=_listen, args=(line, request, pool, slots), name="controller", daemon=True).start()
    # Answers requests one after another; slots use the time between them.
    while not request.is_over:
        pool.look_after()
        for outcome in slots.turn(pool.holder.newest):
            line.send_if_open(wire.Thinks(outcome.slot, outcome.reason, outcome.words), outcome.frame)
        taken = request.take(IDLE_S)
        if taken is not None:
            line.send_if_open(*_answered(pool, *taken))
    ray.shutdown()
    return 0


def _listen(line: ControllerStream, request: NewestRequest, pool: PlannerPool, slots: BackgroundPool) -> None:
    """Handles the controller's messages, also while the other thread waits for Ray."""
    try:
        while True:
            message, body = wire.receive(line.stream)
            match message:
                case wire.Ping(number):
                    line.send(wire.Pong(number, pool.up, pool.restarts, pool.processes, slots.up))
                case wire.Remember(slot):
                    slots.remember(slot, bytes(body))
                case wire.Ask():
                    late = request.put(message, body, time.monotonic())
                    if late is not None:
                        line.send(wire.Failed(late.request, late.epoch, "busy", "a newer request replaced it"))
                case _:
                    raise ConnectionError(f"unexpected message from the controller: {type(message).__name__}")
    except (EOFError, OSError):
        end = Timer(FAREWELL_S, os._exit, (0,))
        end.daemon = True
        end.start()
        request.close()


def _answered(pool: PlannerPool, ask: wire.Ask, frame: bytearray, at_s: float) -> tuple[wire.Message, bytes]:
    try:
        plan = pool.plan(frame, ask.deadline_s - (time.monotonic() - at_s))
    except NoPlan as error:
        return wire.Failed(ask.request, ask.epoch, error.reason, str(error)), b""
    except FrameError as error:
        return wire.Failed(ask.request, ask.epoch, "error", str(error)), b""
    return wire.PlanAnswer(ask.request, ask.epoch, time.monotonic() - at_s), plan


if __name__ == "__main__":
    sys.exit(main())
