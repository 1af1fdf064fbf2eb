"""Replay of requests on pools whose prefill and decode are together or apart, with measured times, queues and transfer.

Together: an instance prefills the prompts that wait, one by one, before its next decode step: a prompt that arrives
holds up all answers in progress, as in engines without chunks. Apart: a prompt waits at
the prefill instance with the least to do, its cache then goes over both networks at the pace of the slower one, one
prompt after another, and joins the decode instance with the fewest requests. A step takes the measured time for its
number of requests. A request meets its SLO when its first token and the mean of the others are in time.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tests.rigs.measured_serving import Measured


@dataclass(frozen=True, slots=True)
class Request:
    at_s: float
    prompt: int
    answer: int
    at: str
    """GPU type that the routing weights give it: the only one, or that of its prefill."""
    then_at: str = ""
    """Of its decode, where that is apart."""


@dataclass(slots=True, eq=False)
class _Flying:
    request: Request
    left: int
    first_s: float = 0.0


@dataclass(slots=True, eq=False)
class Instance:
    times: Measured
    gpu: str
    phase: str
    """`prefill`, `decode`, or empty: both."""
    link_bytes_per_s: float
    most: int
    """Requests in flight that its memory holds."""
    waiting: deque[_Flying] = field(default_factory=deque)
    flying: list[_Flying] = field(default_factory=list)
    prefilling: _Flying | None = None
    is_stepping: bool = False
    link_free_s: float = 0.0

    def backlog_s(self) -> float:
        """Time of the prompts that wait, as a router that knows the queues estimates it."""
        prompts = [f.request.prompt for f in self.waiting] + (
            [self.prefilling.request.prompt] if self.prefilling else []
        )
        return sum(float(self.times.prefill_s(np.array(tokens))) for tokens in prompts)


class Replay:
    """One replay: requests that met both SLOs are counted in `met`."""

    def __init__(
        self, instances: Sequence[Instance], ttft_s: float, tpot_s: float, cache_bytes_per_token: float
    ) -> None:
        self.fronts = [each for each in instances if each.phase != "decode"]
        self.decoders = [each for each in instances if each.phase == "decode"]
        self.ttft_s, self.tpot_s, self.cache_bytes_per_token = ttft_s, tpot_s, cache_bytes_per_token
        self.met = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.now_s = 0.0

    def run(self, requests: Sequence[Request]) -> float:
        """Fraction of the requests that met both."""
        for request in requests:
            self._later(request.at_s, partial(self._arrived, request))
        while self._events:
            self.now_s, _, happens = heapq.heappop(self._events)
            happens()
        return self.met / len(requests)

    def _later(self, at_s: float, happens: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, self._number, happens))

    def _arrived(self, request: Request) -> None:
        instance = min(
            (each for each in self.fronts if each.gpu == request.at), key=lambda e: (e.backlog_s(), len(e.flying))
        )
        instance.waiting.append(_Flying(request, request.answer - 1))
        self._go_on(instance)

    def _go_on(self, instance: Instance) -> None:
        if instance.prefilling or instance.is_stepping:
            return
        while instance.waiting and len(instance.flying) < instance.most:
            first = instance.waiting.popleft()
            if instance.phase != "decode":
                instance.prefilling = first
                took = float(instance.times.prefill_s(np.array(first.request.prompt)))
                self._later(self.now_s + took, partial(self._prefilled, instance, first))
                return
            instance.flying.append(first)
        if instance.flying:
            instance.is_stepping = True
            context = np.mean([f.request.prompt + f.request.answer - f.left for f in instance.flying])
            took = float(instance.times.step_s(np.array(len(instance.flying)), np.array(context)))
            self._later(self.now_s + took, partial(self._stepped, instance))

    def _prefilled(self, instance: Instance, flying: _Flying) -> None:
        instance.prefilling = None
        flying.first_s = self.now_s
        if flying.left <= 0:
            self._done(flying)
        elif instance.phase == "prefill":
            target = min(
                (each for each in self.decoders if each.gpu == flying.request.then_at),
                key=lambda each: len(each.flying) + len(each.waiting),
            )
            pace = min(instance.link_bytes_per_s, target.link_bytes_per_s)
            moving_s = flying.request.prompt * self.cache_bytes_per_token / pace
            instance.link_free_s = max(self.now_s, instance.link_free_s) + moving_s
            self._later(instance.link_free_s, partial(self._moved, target, flying))
        else:
            instance.flying.append(flying)
        self._go_on(instance)

    def _moved(self, target: Instance, flying: _Flying) -> None:
        target.waiting.append(flying)
        self._go_on(target)

    def _stepped(self, instance: Instance) -> None:
        instance.is_stepping = False
        for flying in instance.flying:
            flying.left -= 1
            if flying.left <= 0:
                self._done(flying)
        instance.flying = [flying for flying in instance.flying if flying.left > 0]
        self._go_on(instance)

    def _done(self, flying: _Flying) -> None:
        tpot_s = (self.now_s - flying.first_s) / max(1, flying.request.answer - 1)
        self.met += flying.first_s - flying.request.at_s <= self.ttft_s and tpot_s <= self.tpot_s
