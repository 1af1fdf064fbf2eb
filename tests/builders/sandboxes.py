"""A pretend node whose kernel obeys leases at once: calls grow, hit their lease, end, and are killed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from isolation.arbiter import step
from isolation.ledger import MIB, MemoryLedger, Sandbox
from isolation.settings import Settings
from isolation.state import (
    Action,
    Admit,
    ArbiterState,
    Asked,
    CallDemand,
    Ended,
    Event,
    Freeze,
    Kill,
    KillAgent,
    ReachedLease,
    Refuse,
    SandboxStarted,
    SetAgentLease,
    SetLease,
    Thaw,
    Used,
)

TICK_S = 0.05


def sandbox(
    name: str, *, budget_mib: int = 10_000, priority: int = 0, guaranteed_mib: int = 0, agent_mib: int = 0
) -> Sandbox:
    return Sandbox(name, budget_mib * MIB, priority, guaranteed_mib * MIB, agent_mib * MIB)


def request(call: str, sandbox: str, claim_mib: int, *, at_s: float = 0.0, wait_s: float = 1e9) -> CallDemand:
    return CallDemand(call, sandbox, at_s, claim_mib * MIB, wait_s=wait_s)


@dataclass(frozen=True, slots=True)
class Work:
    """What a call does: rising memory over its run time."""

    call: str
    sandbox: str
    claim_mib: int
    asks_at_s: float
    takes_s: float
    peak_mib: int
    wait_s: float = 1e9

    def target_bytes(self, done_s: float) -> int:
        """Memory after so much work: it rises to the peak at half time."""
        return min(self.peak_mib * MIB, round(2 * self.peak_mib * MIB * done_s / self.takes_s) + MIB // 4)


@dataclass
class PretendNode:
    """Runs works against the arbiter. Agents use the memory in `agent_bytes`."""

    settings: Settings
    state: ArbiterState
    works: dict[str, Work]
    agent_bytes: dict[str, int] = field(default_factory=dict)
    now_s: float = 0.0
    done_s: dict[str, float] = field(default_factory=dict)
    """Running call → work done."""
    used: dict[str, int] = field(default_factory=dict)
    lease: dict[str, int] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    outcome: dict[str, str] = field(default_factory=dict)
    ended_at_s: dict[str, float] = field(default_factory=dict)
    admitted_claims: dict[str, int] = field(default_factory=dict)
    dead_agents: set[str] = field(default_factory=set)
    log: list[tuple[float, Action]] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)
    _asked: set[str] = field(default_factory=set)
    _dying: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, budget_mib: int, sandboxes: Iterable[Sandbox], works: Iterable[Work], settings: Settings | None = None
    ) -> "PretendNode":
        ledger = MemoryLedger(budget_mib * MIB)
        node = cls(settings or Settings(), ArbiterState(ledger), {work.call: work for work in works})
        node._events = [SandboxStarted(one) for one in sandboxes]
        return node

    def run(self, until_s: float) -> None:
        """Runs until all works have an outcome, or the time is up."""
        while self.now_s < until_s and len(self.outcome) < len(self.works):
            self.tick()

    def tick(self) -> None:
        self._ask()
        self._work()
        used = Used(dict(self.used), dict(self.agent_bytes))
        self.state, actions = step(self.state, [*self._events, used], self.now_s, self.settings)
        self._events = []
        for action in actions:
            self.log.append((self.now_s, action))
            self._obey(action)
        self.now_s += TICK_S

    def _ask(self) -> None:
        for work in self.works.values():
            if work.call not in self._asked and work.asks_at_s <= self.now_s:
                self._asked.add(work.call)
                asked = request(work.call, work.sandbox, work.claim_mib, at_s=self.now_s, wait_s=work.wait_s)
                self._events.append(Asked(asked))

    def _work(self) -> None:
        for call in self._dying:
            self._end(call, "killed")
        self._dying = set()
        for call in list(self.done_s):
            if call in self.frozen:
                continue
            work = self.works[call]
            target = work.target_bytes(self.done_s[call] + TICK_S)
            if target > self.lease[call]:
                self.used[call] = max(self.used[call], self.lease[call])
                self._events.append(ReachedLease(call, self.used[call]))
                continue
            self.used[call] = target
            self.done_s[call] += TICK_S
            if self.done_s[call] >= work.takes_s:
                self._end(call, "done")

    def _end(self, call: str, how: str) -> None:
        peak = self.used.pop(call)
        del self.done_s[call], self.lease[call]
        self.frozen.discard(call)
        self.outcome[call] = how
        self.ended_at_s[call] = self.now_s
        self._events.append(Ended(call, peak))

    def _obey(self, action: Action) -> None:
        match action:
            case Admit(call, _, lease_bytes):
                self.done_s[call], self.used[call], self.lease[call] = 0.0, 0, lease_bytes
                self.admitted_claims[call] = lease_bytes
            case Refuse(call):
                self.outcome[call] = "refused"
                self.ended_at_s[call] = self.now_s
            case SetLease(call, lease_bytes):
                self.lease[call] = lease_bytes
            case SetAgentLease():
                pass
            case Freeze(call):
                self.frozen.add(call)
            case Thaw(call):
                self.frozen.discard(call)
            case Kill(call):
                self._dying.add(call)
            case KillAgent(name):
                self.dead_agents.add(name)
            case _:
                pass

    def actions(self, kind: type[Action]) -> list[Action]:
        return [action for _, action in self.log if isinstance(action, kind)]
