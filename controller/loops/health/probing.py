"""Pair probes of all jobs: questions that verdicts leave open, rounds of orders to agents, and answers as evidence.

Everything about one question ends within half a minute. An agent measures only peers that an order names, and its word
alone accuses no other node (health/probing.py).
"""

import secrets
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from health import probing
from health.records.frames import Evidence, Peer, ProbeAddress, ProbeOrder, ProbeResult, packed
from health.remediation.facts import FaultEvidence, NodeKey, Origin
from health.remediation.incidents import STOPS
from health.verdicts.verdict import Part
from tonnage.pairs import Pair, PairSpeed, bad_pairs, rounds_of
from tonnage.probe_wire import LOST

DEADLINE_S = 25.0
"""Time from a question to its answer, with whatever was measured by then: remediation waits for 30 s."""
ROUND_S = 7.0
"""Longest round: an idle agent gets its order within 5 s, a pair takes 1 to 4 s."""
AT_ONCE = 4
"""Questions that are probed at the same time."""
REST_S = 120.0
"""Time after which a job may ask again."""
HEARD_S = 10.0
"""Silence of an agent after which its node is no control."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the agent of a node reports about it."""

    heard_s: float
    evidence: tuple[Evidence, ...] = ()
    at_s: float = 0.0
    """When this evidence arrived."""
    life: str = ""
    """Session of the agent's newest report, and its number."""
    sequence: int = -1
    probes_at: ProbeAddress | None = None
    """Where others may measure it."""


@dataclass(slots=True)
class OpenQuestion:
    """One question under way."""

    question: probing.Question
    evidence: FaultEvidence
    """The verdict that asks."""
    pods: Mapping[str, tuple[str, ...]]
    """UIDs of the suspected ranks' pods by node."""
    asked_s: float
    controls: tuple[str, ...] = ()
    rounds: deque[tuple[Pair, ...]] = field(default_factory=deque)
    under_way: dict[Pair, str] = field(default_factory=dict)
    """Pairs of the present round, and its number."""
    orders: dict[str, bytes] = field(default_factory=dict)
    round_s: float = 0.0
    measured: dict[Pair, PairSpeed] = field(default_factory=dict)
    seen_s: float = 0.0
    """Instant of the newest measurement."""
    has_checked: bool = False
    """Whether bad pairs were measured a second time."""

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes of the present round."""
        return frozenset(node for pair in self.under_way for node in pair)

    def begin(self, reachable: Container[str], trusted: Iterable[str]) -> None:
        """Plans the rounds. reachable: nodes that others may measure. trusted: nodes that may be controls."""
        fit = [node for node in trusted if node not in self.question.suspects and node in reachable]
        self.controls = tuple(fit[: probing.CONTROLS])
        pairs = probing.pairs_of(self.question, self.controls)
        self.rounds = deque(rounds_of([pair for pair in pairs if all(node in reachable for node in pair)]))

    def note(self, pair: Pair, result: ProbeResult) -> None:
        """Keeps the better of two measurements of a pair; what failed for no fault of the network is none."""
        lost = result.failure in LOST
        if result.failure and not lost:
            return
        made = PairSpeed(result.rtt_s, min(result.out_bytes_per_s, result.in_bytes_per_s), lost=lost)
        before = self.measured.get(pair)
        if before is None or before.lost or (not made.lost and made.bytes_per_s > before.bytes_per_s):
            self.measured[pair] = made


class Probing:
    """Questions of all jobs. For one thread at a time."""

    def __init__(self, token: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self._token = token
        self._asked: list[OpenQuestion] = []
        self._last_s: dict[str, float] = {}
        self.answered: Counter[str] = Counter()
        """Answers since the start, by kind."""

    @property
    def is_idle(self) -> bool:
        """Whether no question is under way."""
        return not self._asked

    @property
    def orders(self) -> dict[str, bytes]:
        """Orders of all present rounds by node."""
        return {node: order for each in self._asked for node, order in each.orders.items()}

    def ask(
        self, question: probing.Question, evidence: FaultEvidence, pods: Mapping[str, tuple[str, ...]], now_s: float
    ) -> None:
        """Takes up a question, unless its job asked of late."""
        if now_s - self._last_s.get(evidence.job, float("-inf")) < REST_S:
            return
        self._last_s[evidence.job] = now_s
        self._asked.append(OpenQuestion(question, evidence, pods, now_s))

    def forget(self, runs: Mapping[str, str]) -> None:
        """Drops questions of runs that are over. runs: present run of each job."""
        self._asked = [each for each in self._asked if runs.get(each.evidence.job) == each.evidence.incarnation]
        self._last_s = {job: at_s for job, at_s in self._last_s.items() if job in runs}

    def take(self, node: str, results: Iterable[ProbeResult], now_s: float) -> None:
        """Results that an agent reports; those of no present round count for nothing."""
        for result in results:
            pair = (node, result.peer)
            for each in self._asked:
                if each.under_way.get(pair) == result.number:
                    del each.under_way[pair]
                    each.note(pair, result)
                    each.seen_s = max(each.seen_s, min(now_s, now_s - result.age_s))

    def turn(
        self, agents: Mapping[str, Host], trusted: Sequence[str], keys: Mapping[str, str], now_s: float
    ) -> tuple[FaultEvidence, ...]:
        """Begins rounds and answers what is complete.

        trusted: nodes that may be controls, the best first. keys: UID of each node.
        """
        found: list[FaultEvidence] = []
        reachable = {node for node, agent in agents.items() if agent.probes_at is not None}
        heard = [node for node in trusted if node in agents and now_s - agents[node].heard_s <= HEARD_S]
        for each in list(self._asked[:AT_ONCE]):
            if not each.controls:
                each.begin(reachable, heard)
            if each.under_way and now_s - each.round_s > ROUND_S:
                each.under_way.clear()  # its agents are not heard: nothing is known of these pairs
            if not each.under_way:
                self._go_on(each, agents, now_s)
            if not each.under_way and (not each.rounds or now_s - each.asked_s > DEADLINE_S):
                self._asked.remove(each)
                answered = probing.answer(each.question, each.controls, each.measured)
                self.answered[str(answered.found)] += 1
                found += evidence_of(each, answered, keys, each.seen_s or now_s)
        return tuple(found)

    def _go_on(self, asked: OpenQuestion, agents: Mapping[str, Host], now_s: float) -> None:
        """Begins the next round, where its nodes are in no other's."""
        asked.orders = {}
        if not asked.rounds and not asked.has_checked:
            asked.has_checked = True
            asked.rounds.extend(rounds_of(sorted(bad_pairs(asked.measured, asked.controls))))
        if not asked.rounds or now_s - asked.asked_s > DEADLINE_S - 2.0:
            asked.rounds.clear()
            return
        others = {node for each in self._asked if each is not asked for node in each.nodes}
        wanted = asked.rounds[0]
        if others & {node for pair in wanted for node in pair}:
            return
        asked.rounds.popleft()
        number = self._token()
        asked.under_way, asked.round_s = dict.fromkeys(wanted, number), now_s
        for a, b in wanted:
            token, peer = self._token(), agents[b].probes_at
            assert peer is not None  # noqa: S101 - pairs without an address are left out
            measures = (Peer(b, peer.host, peer.port, token),)
            order = ProbeOrder(a, agents[a].life, agents[a].sequence, number, measures)
            admits = ProbeOrder(b, agents[b].life, agents[b].sequence, number, (), (token,))
            asked.orders |= {a: packed(order), b: packed(admits)}


def is_elsewhere(at: ProbeAddress) -> bool:
    """Whether other agents may be sent there: to an address of a node, and not to names, to themselves, or to what is
    on each node alone, such as a cloud's metadata server."""
    try:
        host = ip_address(at.host)
    except ValueError:
        return False
    is_own = host.is_loopback or host.is_link_local or host.is_unspecified or host.is_multicast
    return not is_own and 0 < at.port < 65536


def evidence_of(
    asked: OpenQuestion, found: probing.Answer, keys: Mapping[str, str], at_s: float
) -> Iterable[FaultEvidence]:
    """What an answer says to remediation: whom it accuses, and that the open question is closed."""
    first = asked.evidence
    opens = first.part in (Part.NOTHING, Part.GROUP)
    if found.found in (probing.AnswerKind.NIC, probing.AnswerKind.LINK):
        nodes = tuple(NodeKey(node, keys.get(node, "")) for node in found.nodes)
        accused = replace(
            first,
            part=Part.NIC if found.found is probing.AnswerKind.NIC else Part.LINK,
            nodes=nodes,
            pods=tuple(pod for node in found.nodes for pod in asked.pods.get(node, ())),
            at_s=at_s,
            confidence=0.95,
            source=Origin.NODE,
            probe="",
            shown=(*first.shown, found.note),
        )
        yield accused
        if (accused.part, accused.nodes) != (first.part, first.nodes):
            yield replace(first, at_s=at_s, over=True, shown=(f"answered: {found.note}",))
    elif found.found is probing.AnswerKind.SOUND and opens and first.syndrome in STOPS:
        # It stands still on a sound network: a restart in place is enough, or shows that it is not.
        yield replace(first, at_s=at_s, program_error=True, probe="", shown=(*first.shown, found.note))
    elif found.found is probing.AnswerKind.SOUND and opens:
        yield replace(first, at_s=at_s, over=True, shown=(f"no fault of the network: {found.note}",))
    else:
        yield replace(first, shown=(*first.shown, found.note))
