"""Simulated row of servers that serve requests and take steps in continuous time, with the draw of each at every
instant.

Each pool has its own servers and one queue, first come first served. A server takes up to `batch` requests. It
computes their prompts one at a time, and generates tokens for all requests past their prompt together; prompts have
priority. Phases change by events, so draws are exact between events and no time step has to be chosen. A limit that
changes within a phase changes the speed of the rest of it.
"""

import heapq
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from cluster.arrays import FloatArray, IntArray
from simulator.power.machine import POWER_EXPONENT, PROMPT_EXPONENT, TOKEN_EXPONENT
from simulator.power.requests import Requests, ServerPool

IDLE, PROMPT, TOKENS = 0, 1, 2
SPEED_EXPONENT = (0.0, PROMPT_EXPONENT / POWER_EXPONENT, TOKEN_EXPONENT / POWER_EXPONENT)
"""Exponents of speed: the speed of a phase is the fraction of its power above idle, to this power."""
NEVER = float("inf")
AGENT_LOOKS_S = 0.5
"""Interval at which an agent counts credit: a burst may last this much longer than its credit."""
CREDIT_BACK_S = 300.0
"""Time in which used credit is restored: no sooner than the breaker has cooled (ROW_BREAKER.cooling_s)."""

Aboard = tuple[int, float, float, float, int]
"""(number, arrival, prompt seconds, prompt watts, tokens) of a request on a server."""


class _Server:
    """State of one server. `work_s` is the rest of its phase at full clock, counted at `since_s`."""

    __slots__ = (
        "burst_j",
        "burst_w",
        "bursting",
        "cap_w",
        "clock",
        "credit_at_s",
        "credit_j",
        "decoding",
        "draw_w",
        "ends_s",
        "held_s",
        "idle_w",
        "least",
        "number",
        "phase",
        "pool",
        "progress",
        "since_s",
        "speed",
        "step_s",
        "swing_w",
        "version",
        "waiting",
        "work_s",
    )

    def __init__(self, number: int, pool: int, idle_w: float, least: float) -> None:
        self.number, self.pool, self.idle_w, self.least = number, pool, idle_w, least
        self.phase = IDLE
        self.waiting: deque[Aboard] = deque()
        """Requests whose prompt is being computed or is next."""
        self.decoding: list[tuple[float, int, float]] = []
        """Heap of (token at which it ends, number, arrival)."""
        self.progress = 0.0
        """Tokens generated for each request in `decoding` since that was last empty."""
        self.clock, self.cap_w = 1.0, NEVER
        """Limits in force: fraction of a phase's power above idle that the clock leaves, and watts of the server."""
        self.burst_j, self.credit_j, self.credit_at_s, self.bursting = 0.0, 0.0, 0.0, False
        """Largest burst above `cap_w` in joules, the joules left at the last count, its instant, and whether bursts are
        allowed."""
        self.burst_w = NEVER
        """Highest draw of a burst in watts."""
        self.draw_w, self.swing_w, self.speed = idle_w, 0.0, 1.0
        self.ends_s = 0.0
        self.work_s, self.step_s, self.since_s = 0.0, 0.0, 0.0
        self.held_s = 0.0
        """Time that it has worked below full speed."""
        self.version = 0


class Row:
    """Servers, their requests, and the meter at the row's breaker."""

    def __init__(self, pools: Sequence[ServerPool], requests: Requests, *, budget_w: float = NEVER) -> None:
        """Servers are numbered pool by pool."""
        self.pools, self.budget_w = pools, budget_w
        self.now_s = 0.0
        self.latency_s = np.full(len(requests), np.nan, dtype=np.float32)
        """Latency by request, from its arrival to its last token; NaN until it is done."""
        self.credit_back_s = CREDIT_BACK_S
        """Time in which used credit is restored."""
        self.over_s = 0.0
        """Time above the budget so far."""
        self.steps_s = [array("d") for _ in pools]
        """Durations of the steps of each pool so far; a step taken together lasts until its slowest server is done."""
        servers = [pool.servers for pool in pools]
        of_pool = [number for number, pool in enumerate(pools) for _ in range(pool.servers)]
        of_server = [pools[number].machine for number in of_pool]
        self._servers = [
            _Server(n, number, machine.idle_w, machine.least_share)
            for n, (number, machine) in enumerate(zip(of_pool, of_server, strict=True))
        ]
        self._first = np.concatenate([[0], np.cumsum(servers)]).tolist()
        self._load = [[0] * own for own in servers]
        self._turn = [0] * len(servers)
        self._queue: tuple[deque[Aboard], ...] = tuple(deque() for _ in servers)
        self._batch = [pool.batch for pool in pools]
        self._token_s = [[0.0, *(p.machine.token_seconds(n) for n in range(1, p.batch + 1))] for p in pools]
        self._token_w = [[0.0, *(p.machine.token_swing_w(n) for n in range(1, p.batch + 1))] for p in pools]
        self._high_s = [pool.curve.high_s() if pool.step_s else ([], []) for pool in pools]
        self._ended = [0] * len(pools)
        """Number of servers whose step ended and whose next one has not begun."""
        self._events: list[tuple[float, int, int]] = []
        # Draws are in plain arrays for the events, which change one at a time; numpy sees the same memory.
        count, idle_w = len(of_pool), [machine.idle_w for machine in of_server]
        self._draw, self._shift = array("d", idle_w), array("d", [0.0]) * count
        self.draw_w: FloatArray = np.frombuffer(self._draw)
        """Present draw of each server, shape (servers,). A view: copy what is to be kept."""
        self._shift_view = np.frombuffer(self._shift)
        self._phase = bytearray(count)
        self.phase: IntArray = np.frombuffer(self._phase, dtype=np.uint8)
        """Present phase, shape (servers,): IDLE, PROMPT or TOKENS. A view: copy what is to be kept."""
        self._total_w, self._window_s, self._over_since_s = sum(idle_w), 0.0, -1.0
        self._arrivals: Iterator[tuple[int, float, int, float, float, int]] = requests.each()
        self._next = next(self._arrivals, None)

    def advance(self, until_s: float) -> None:
        """Serves until this instant."""
        events, servers = self._events, self._servers
        while True:
            event_s = events[0][0] if events else NEVER
            if self._next is not None and self._next[1] <= event_s:
                if self._next[1] > until_s:
                    break
                self._arrive(*self._next)
                self._next = next(self._arrivals, None)
                continue
            if event_s > until_s:
                break
            at_s, number, version = heapq.heappop(events)
            server = servers[number]
            if version != server.version:
                continue
            if at_s < server.ends_s:  # its credit is used up, or restored
                self._settle(server, at_s)
                self._run(server, at_s)
            else:
                self._finish(server, at_s)
        self.now_s = until_s

    def close_window(self) -> FloatArray:
        """Mean draw of each server since the last call, in watts; shape (servers,)."""
        mean = self.draw_w + self._shift_view / (self.now_s - self._window_s)
        self._shift_view[:] = 0.0
        self._window_s = self.now_s
        self._total_w = float(np.add.reduce(self.draw_w))
        return mean

    def limit(self, number: int, clock: float, cap_w: float, burst_j: float = 0.0, burst_w: float = NEVER) -> None:
        """Puts limits in force now.

        clock: fraction of every phase's power above idle that the locked clock leaves, 1 for none.
        cap_w: limit of the whole server in watts; the clock falls until the draw keeps to it or the clock is at its
        lowest.
        burst_j: joules that it may draw above cap_w while it has credit (power/safety/bursts.py).
        burst_w: highest draw of the whole server in a burst, in watts.
        """
        server = self._servers[number]
        if (clock, cap_w, burst_j, burst_w) == (server.clock, server.cap_w, server.burst_j, server.burst_w):
            return
        # Limits that bind neither before nor after leave the phase as it is; ends of bursts bind bursts alone.
        free_w = min(burst_w, server.burst_w) if server.bursting else NEVER
        free_w = free_w if cap_w == server.cap_w else min(cap_w, server.cap_w)
        goes_on = clock == server.clock and burst_j == server.burst_j
        goes_on = goes_on and (server.phase == IDLE or server.idle_w + server.swing_w * clock <= free_w)
        if goes_on and cap_w == server.cap_w:
            server.burst_w = burst_w
            return
        if server.burst_j:
            self._count_credit(server, self.now_s)
        server.clock, server.cap_w, server.burst_j, server.burst_w = clock, cap_w, burst_j, burst_w
        server.credit_at_s = self.now_s
        if server.phase != IDLE and not goes_on:
            self._settle(server, self.now_s)
            self._run(server, self.now_s)

    def set_budget(self, budget_w: float) -> None:
        """Sets the budget above which the row counts as over it from now on."""
        self.budget_w = budget_w
        self._note_over(self.now_s)

    def over_until_now_s(self) -> float:
        """Seconds above the budget, including the present stretch."""
        return self.over_s + (self.now_s - self._over_since_s if self._over_since_s >= 0 else 0.0)

    def held_s(self) -> FloatArray:
        """Time that each server has worked below full speed; shape (servers,)."""
        for server in self._servers:
            if server.phase != IDLE and server.speed < 1.0:
                self._settle(server, self.now_s)
        return np.array([server.held_s for server in self._servers])

    def _arrive(self, number: int, at_s: float, pool: int, prompt_s: float, swing_w: float, tokens: int) -> None:
        request = (number, at_s, prompt_s, swing_w, tokens)
        load = self._load[pool]
        least = min(load)
        if least >= self._batch[pool]:
            if not self.pools[pool].step_s:  # a server still at its last step goes on with the next
                self._queue[pool].append(request)
            return
        # Round robin among the emptiest, as a load balancer does; always choosing the first would wear one server and
        # spare another.
        turn = self._turn[pool]
        try:
            place = load.index(least, turn)
        except ValueError:
            place = load.index(least)
        self._turn[pool] = place + 1
        self._admit(self._servers[self._first[pool] + place], request, at_s)

    def _admit(self, server: _Server, request: Aboard, now_s: float) -> None:
        self._load[server.pool][server.number - self._first[server.pool]] += 1
        server.waiting.append(request)
        if server.phase == PROMPT:
            return
        if server.phase == TOKENS:
            self._settle(server, now_s)
        self._begin(server, now_s)

    def _finish(self, server: _Server, now_s: float) -> None:
        """Ends a phase: a prompt joins the batch, or requests have their last token."""
        self._settle(server, now_s)
        if server.phase == PROMPT:
            number, arrived_s, _, _, tokens = server.waiting.popleft()
            heapq.heappush(server.decoding, (server.progress + tokens, number, arrived_s))
            self._begin(server, now_s)
            return
        decoding, queue = server.decoding, self._queue[server.pool]
        steps = self.pools[server.pool].step_s
        server.progress = decoding[0][0]
        while decoding and decoding[0][0] <= server.progress:
            _, number, arrived_s = heapq.heappop(decoding)
            self.latency_s[number] = now_s - arrived_s
            if queue:
                server.waiting.append(queue.popleft())
            else:
                self._load[server.pool][server.number - self._first[server.pool]] -= 1
        if not decoding:
            server.progress = 0.0
        self._begin(server, now_s)
        if steps:
            self._next_step(server.pool, number, arrived_s, now_s)

    def _next_step(self, pool: int, number: int, arrived_s: float, now_s: float) -> None:
        """Records a step that ended, and begins the next one: at once, or when the slowest server is done."""
        job = self.pools[pool]
        self._ended[pool] += 1
        if job.together and self._ended[pool] < job.servers:
            return
        self.steps_s[pool].append(now_s - arrived_s)
        begins, ends = self._high_s[pool]
        if now_s < ends[bisect_right(begins, now_s) - 1]:
            swing_w = job.machine.swing_w(float(job.machine.prompt_share[0]))
            for _ in range(self._ended[pool]):
                self._arrive(number, now_s, pool, job.step_s, swing_w, 1)
        self._ended[pool] = 0

    def _begin(self, server: _Server, now_s: float) -> None:
        """Starts the next phase: a prompt if one waits, else tokens, else idle."""
        if server.waiting:
            server.phase = PROMPT
            _, _, server.work_s, server.swing_w, _ = server.waiting[0]
        elif server.decoding:
            server.phase = TOKENS
            batch = len(server.decoding)
            server.swing_w, server.step_s = self._token_w[server.pool][batch], self._token_s[server.pool][batch]
            server.work_s = (server.decoding[0][0] - server.progress) * server.step_s
        else:
            server.phase, server.speed = IDLE, 1.0
            server.version += 1
            self._phase[server.number] = IDLE
            if server.burst_j:
                self._count_credit(server, now_s)
            self._draws(server, server.idle_w, now_s)
            return
        self._phase[server.number] = server.phase
        self._run(server, now_s)

    def _share(self, server: _Server) -> float:
        """Fraction of the phase's power above idle that the limits in force leave."""
        share, swing_w = server.clock, server.swing_w
        cap_w = server.cap_w if not server.bursting or server.cap_w > server.burst_w else server.burst_w
        if server.idle_w + swing_w * share > cap_w:
            share = (cap_w - server.idle_w) / swing_w
        return share if share > server.least else server.least

    def _run(self, server: _Server, now_s: float) -> None:
        """Continues the rest of the phase under the limits in force."""
        if server.burst_j:
            self._count_credit(server, now_s)
        else:
            server.bursting = False
        share = self._share(server)
        server.speed = 1.0 if share == 1.0 else share ** SPEED_EXPONENT[server.phase]
        server.since_s = now_s
        server.version += 1
        server.ends_s = now_s + server.work_s / server.speed
        draw_w = server.idle_w + server.swing_w * share
        wakes_s = min(server.ends_s, self._credit_turns_s(server, draw_w, now_s)) if server.burst_j else server.ends_s
        heapq.heappush(self._events, (wakes_s, server.number, server.version))
        self._draws(server, draw_w, now_s)

    def _count_credit(self, server: _Server, now_s: float) -> None:
        """Counts credit up to now and decides whether bursts are allowed: with credit left or, after running out, half
        of it back.
        """
        for_s, most_j = now_s - server.credit_at_s, server.burst_j
        if for_s > 0:  # otherwise a server without a limit would have infinite spare watts for no time
            spare_j = (server.cap_w - server.draw_w) * for_s
            server.credit_j = min(server.credit_j + min(spare_j, most_j * for_s / self.credit_back_s), most_j)
        server.credit_at_s = now_s
        server.bursting = server.credit_j > (0.0 if server.bursting else 0.5 * most_j)

    def _credit_turns_s(self, server: _Server, draw_w: float, now_s: float) -> float:
        """Instant when the agent, which checks periodically, will find the credit used up, or half of it restored."""
        if server.bursting:
            over_w = draw_w - server.cap_w
            return now_s + server.credit_j / over_w + AGENT_LOOKS_S if over_w > 0 else NEVER
        if server.idle_w + server.swing_w * server.clock <= server.cap_w:
            return NEVER
        back_w = min(server.burst_j / self.credit_back_s, server.cap_w - draw_w)
        missing_j = 0.5 * server.burst_j - server.credit_j
        return now_s + missing_j / back_w + AGENT_LOOKS_S if back_w > 0 else NEVER

    def _settle(self, server: _Server, now_s: float) -> None:
        """Counts the progress of the phase since the last count."""
        for_s = now_s - server.since_s
        done_s = for_s * server.speed
        server.work_s -= done_s
        server.since_s = now_s
        if server.phase == TOKENS:
            server.progress += done_s / server.step_s
        if server.speed < 1.0:
            server.held_s += for_s

    def _draws(self, server: _Server, draw_w: float, now_s: float) -> None:
        """Updates the meter: the sums for each window's mean, and the time above the budget."""
        change_w = draw_w - server.draw_w
        if change_w == 0.0:
            return
        server.draw_w = draw_w
        self._draw[server.number] = draw_w
        self._shift[server.number] -= change_w * (now_s - self._window_s)
        self._total_w += change_w
        self._note_over(now_s)

    def _note_over(self, now_s: float) -> None:
        if self._total_w > self.budget_w:
            if self._over_since_s < 0:
                self._over_since_s = now_s
        elif self._over_since_s >= 0:
            self.over_s += now_s - self._over_since_s
            self._over_since_s = -1.0
