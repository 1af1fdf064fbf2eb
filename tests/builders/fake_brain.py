"""Fake brain for tests: a thread at the other end of the stream that plans without Ray, or fails on request."""

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from threading import Event, Thread
from typing import Literal

from cluster.actions import Action, Bind, Scale
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.version import VERSION
from cluster.workloads import InstanceType
from controller.brain.frames import plan_frame, proposal_over, snapshot_from_frame
from controller.brain.on_ray.actors import Planner
from controller.brain.wire import (
    Ask,
    Begin,
    Failed,
    Message,
    Ping,
    PlanAnswer,
    Pong,
    Ready,
    Remember,
    StartRefused,
    Thinks,
    WireError,
    receive,
    send,
    written,
)
from controller.deciders.pipeline import proposers_of


class NoChance(Random):
    """Chance that always gives the lowest number."""

    def random(self) -> float:
        return 0.0


Mood = Literal[
    "well",
    "late",
    "mute",
    "wrong_request",
    "wrong_epoch",
    "garbage",
    "dead",
    "strange",
    "no_text",
    "no_plan",
    "infeasible",
    "absurd",
    "too_many",
    "to_nothing",
]
"""Behaviour of the fake brain. well: plans. late: plans, and answers when `let_go` is set. mute: reads but sends
nothing, as a frozen process. wrong_...: answers another request. garbage: sends an invalid message. dead: closes the
stream when a plan is requested. strange: plans for a pod and a node that do not exist. no_text: sends a message with a
byte that is no UTF-8. no_plan: sends a plan with such a byte in one of its steps. infeasible: starts every pod on the
first node, on devices that it does not have. absurd, too_many, to_nothing: scales every service to a number of
instances (`INSTANCES`)."""
INSTANCES: Mapping[Mood, int] = {"absurd": 10**10, "too_many": 1_000_000, "to_nothing": 0}
LONG_S = 30.0


@dataclass
class FakeBrain:
    """Fake brain that behaves as `mood` is at that moment."""

    mood: Mood = "well"
    is_reachable: bool = True
    version: str = VERSION
    opened: int = 0
    closed: list[bool] = field(default_factory=list)
    """For each closed brain, whether it was closed kindly."""
    asked: list[Ask] = field(default_factory=list)
    remembered: dict[str, bytes] = field(default_factory=dict)
    """Memory by slot, as the controller sent it."""
    let_go: Event = field(default_factory=Event)

    def open(self) -> socket.socket:
        if not self.is_reachable:
            raise ConnectionRefusedError("no brain listens")
        self.opened += 1
        mine, theirs = socket.socketpair()
        Thread(target=self._live, args=(theirs,), daemon=True).start()
        return mine

    def close(self, *, kindly: bool) -> None:
        self.closed.append(kindly)

    def _live(self, stream: socket.socket) -> None:
        with stream, suppress(EOFError, OSError, WireError):
            begin, _ = receive(stream)
            if not isinstance(begin, Begin) or begin.version != self.version:
                send(stream, StartRefused("another version"))
                return
            send(stream, Ready(VERSION, "scripted", 1, 1, 0.0, (1,)))
            planner, proposers = Planner(begin.decisions, time.monotonic), proposers_of(begin.decisions)
            while True:
                message, body = receive(stream)
                if self.mood == "mute":
                    continue
                if isinstance(message, Ping):
                    send(stream, Pong(message.number, 1, 0, (1,)))
                elif isinstance(message, Ask):
                    self.asked.append(message)
                    self._answer(message, body, planner, stream)
                    for each in proposers:
                        memory = self.remembered.get(each.name, b"")
                        send(stream, Thinks(each.name), proposal_over(each, body, memory, LONG_S))
                elif isinstance(message, Remember):
                    self.remembered[message.slot] = bytes(body)

    def _answer(self, ask: Ask, frame: bytearray, planner: Planner, stream: socket.socket) -> None:
        def say(message: Message, body: bytes) -> None:
            send(stream, message, body)

        match self.mood:
            case "dead":
                raise EOFError("fails as requested")
            case "garbage":
                say(Pong(0), b"")
                raise WireError("an invalid message was sent")
            case "strange":
                unknown = Step(Bind("d/nobody", "nowhere"), Reason("LeastCost", "made up"))
                say(PlanAnswer(ask.request, ask.epoch, 0.0), plan_frame(Plan(phases=(Phase("start", (unknown,)),))))
                return
            case "no_text":
                sound = bytes(written(Failed(ask.request, ask.epoch, "busy", "why"))[0])
                stream.sendall(sound.replace(b"why", b"w\xffy"))
                return
            case "no_plan":
                made = planner.plan(frame, ask.deadline_s)
                assert b"LeastCost" in made, "a step says why"
                say(PlanAnswer(ask.request, ask.epoch, 0.0), made.replace(b"LeastCost", b"Least\xffost", 1))
                return
            case "infeasible" | "absurd" | "too_many" | "to_nothing":
                say(PlanAnswer(ask.request, ask.epoch, 0.0), plan_frame(_wrong(self.mood, snapshot_from_frame(frame))))
                return
            case "late":
                self.let_go.wait(30.0)
                self.let_go.clear()
        request = ask.request - (self.mood == "wrong_request")
        epoch = ask.epoch - (self.mood == "wrong_epoch")
        say(PlanAnswer(request, epoch, 0.0), planner.plan(frame, ask.deadline_s))


def _wrong(mood: Mood, seen: Snapshot) -> Plan:
    if mood in INSTANCES:
        instances = {InstanceType(seen.gpu_type_names[0]): INSTANCES[mood]}
        actions: list[Action] = [Scale(each.name, instances) for each in seen.services]
    else:
        actions = [Bind(name, seen.nodes.names[0], (99,)) for name in seen.pods.names]
    steps = tuple(Step(action, Reason("LeastCost", "made up")) for action in actions)
    return Plan(phases=(Phase("start", steps),))
