"""Memory of the mix between plans: searches to go on from, variants that were solved, and mixes that may stand."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import ThroughputProfile
from cluster.plans import Certificate, Reason, ServicePlan
from placement.budget import Budget
from placement.mix.columns import ColumnPool
from placement.mix.feasibility import is_feasible, seats_at_once
from placement.mix.heuristics import most_of
from placement.mix.optimizer import SearchState, answer_mix, begun
from placement.mix.own_search import OwnAnswer, OwnQuestion, shared_again
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need, total_cost
from placement.mix.problem_builder import Claimant
from placement.stock import Stock


def stock_that_counts(question: MixQuestion, need: Need) -> dict[str, Stock]:
    """Stocks of a need whose content its mixes depend on: all, or only those without any device where others are ample.

    A stock that holds everything at once that the need could use of every offer binds no mix. Its mixes, and bounds on
    them, then hold for each other stock that does so, too: a device that another pod takes or gives back changes
    nothing.
    """
    names = (name for o in need.offers for name in (*o.stocks, *(quota for quota, _ in o.quotas)))
    own = {name: question.stock[name] for name in names if name in question.stock}
    bare = {name: stock for name, stock in own.items() if not stock.gpus}
    wanted = {
        group: count
        for group, count in most_of(need).items()
        if not bare.keys() >= set(group.stocks) and not any(name in bare for name, units in group.quotas if units)
    }
    return own if seats_at_once(own, wanted) is None else bare


class Digest(NamedTuple):
    """Digests of all that the answer to a question depends on."""

    needs: bytes
    """Of the needs in their order: everything but the stock and the running instances."""
    stock: bytes


def digest_of(question: MixQuestion, *, of_all_stock: bool = False) -> Digest:
    """Digest of a question. of_all_stock: also, for a question of one need, of a stock that is ample."""
    is_whole = of_all_stock or len(question.needs) > 1
    stock = question.stock if is_whole else stock_that_counts(question, question.needs[0])
    return Digest(needs_digest(question), _digest(repr(sorted(stock.items()))))


def needs_digest(question: MixQuestion) -> bytes:
    """Digest of all needs, in their order: of everything that a search depends on but stock and running instances."""
    found = []
    for need in question.needs:
        plain = (
            need.service,
            need.slo,
            need.cells,
            need.slice_factor,
            need.headroom_share,
            need.priority,
            [(o.instance_type, o.price_per_hour, o.cpu_milli, o.memory_bytes, o.places, o.quotas) for o in need.offers],
        )
        columns = (need.rate_per_s, *(each for o in need.offers for each in (o.load, o.variance)))
        found.append(_digest(repr(plain), *columns))
    return b"".join(found)


def _digest(words: str, *columns: FloatArray) -> bytes:
    found = blake2b(words.encode(), digest_size=16)
    for column in columns:
        found.update(column.tobytes())
    return found.digest()


def own_question(alone: MixQuestion, prices: FloatArray, gap: float, bound: float = -math.inf) -> OwnQuestion:
    """The question of a need at these prices, as it may be searched anywhere. bound: proven already."""
    (need,) = alone.needs
    digest, stock = _own_digest(digest_of(alone), prices), stock_that_counts(alone, need)
    return OwnQuestion(digest, replace(need, running=None), prices, stock, gap, bound)


def _own_digest(now: Digest, prices: FloatArray) -> str:
    return _digest(repr((now.needs, now.stock)), prices).hex()


def is_of_same_offers(one: MixQuestion, other: MixQuestion) -> bool:
    """Whether both questions are about the same services, with the same buckets and offers in any stock."""

    def shape(question: MixQuestion) -> list[object]:
        return [(n.service, n.cells, [(o.instance_type, o.group) for o in n.offers]) for n in question.needs]

    return shape(one) == shape(other)


def profiles_digest(profiles: Iterable[ThroughputProfile]) -> bytes:
    """Digest of throughput profiles, in their order."""
    found = blake2b(digest_size=16)
    for each in profiles:
        found.update(repr((each.model, each.gpu_type, each.slo, each.grid, each.gpus_per_instance)).encode())
        found.update(each.requests_per_s.tobytes())
        found.update(repr((each.prefill_s, each.cache_bytes_per_token)).encode())
        found.update(b"" if each.decoded_per_s is None else each.decoded_per_s.tobytes())
    return found.digest()


MORE_WORK = 2.0
"""Factor on the work that did not suffice for a variant from which it is tried again. Chosen."""


@dataclass(frozen=True, slots=True)
class MixVariant:
    """What is known of a variant."""

    mixes: tuple[Mix, ...] | None
    """None: the work did not suffice, or there is no answer."""
    work: float
    """Work that it was given."""


@dataclass(slots=True, eq=False)
class VariantMemory:
    """Variants of the last plan and of the present one, by digest. One that is lost costs work, and no correctness."""

    before: dict[Digest, MixVariant] = field(default_factory=dict)
    now: dict[Digest, MixVariant] = field(default_factory=dict)

    def begin(self) -> None:
        """Begins a plan: what it does not ask for again is forgotten with the next one."""
        self.before, self.now = self.now, {}

    def mixes(self, question: MixQuestion, budget: Budget) -> tuple[Mix, ...] | None:
        """The best answer, from memory or solved within the budget; None where it is not known."""
        digest = digest_of(question)
        known = self.now.get(digest) or self.before.get(digest)
        if known is None or (known.mixes is None and budget.work >= MORE_WORK * known.work):
            if not budget.allows_more():
                return None
            work, answer = budget.work, answer_mix(question, budget)
            is_solved = isinstance(answer, MixAnswer) and not answer.certificate.cut_short
            known = MixVariant(answer.mixes if is_solved and isinstance(answer, MixAnswer) else None, work)
            if budget.time_ran_out and known.mixes is None:
                return None  # another plan may have more time for the same work
        self.now[digest] = known
        return known.mixes


MOST_RESTED = 19
"""Plans in a row that keep mixes although a search could find better ones. Chosen: at a plan a second, one pod in
twenty waits for a search."""

LEAST_PROGRESS = 1e-6
"""Fraction of the objective below which a change of it or of its bound is none."""

Ask = Callable[[Sequence[Need], Collection[Claimant]], MixQuestion]
"""Question of the needs, with the seats around the instances that stay."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundMixes:
    """Mixes of all needs, as a plan found them: no service was refused for want of stock."""

    needs: tuple[Need, ...]
    """As the snapshot has them, before they name stocks."""
    mixes: tuple[Mix, ...]
    """Of the needs, in their order."""
    stay: frozenset[Claimant]
    """Running instances around which seats were counted."""
    services: Mapping[str, ServicePlan]
    certificate: Certificate
    profiles: bytes
    """Digest of the profiles of all models: explanations also depend on those of looser SLOs."""

    def is_better_than(self, before: "FoundMixes") -> bool:
        """Whether the search has found a cheaper mix or a better bound since then."""
        now, then = self.certificate, before.certificate
        least = LEAST_PROGRESS * max(abs(then.objective), 1e-12)
        return now.objective < then.objective - least or now.bound > then.bound + least


@dataclass(slots=True, eq=False)
class StandingMixes:
    """Mixes of the last plan that searched, and for how long the next search can wait."""

    found: FoundMixes
    digest: Digest
    """Of its question, without the names of stocks in the needs, which change with what is free."""
    rest: int
    """Plans for which the search rests while its question stays the same."""
    rested: int = 0
    """Plans since the last search."""

    @classmethod
    def after(cls, found: FoundMixes, ask: Ask, before: "StandingMixes | None") -> "StandingMixes":
        """After a plan that searched. before: what stood until then."""
        asked = replace(ask(found.needs, found.stay), needs=found.needs)
        now = cls(found, digest_of(asked, of_all_stock=True), rest=0)
        if before is None or found.is_better_than(before.found):
            return now
        if now.digest == before.digest:
            now.rest = min(MOST_RESTED, 2 * before.rest + 1)
        return now

    def kept(self, needs: Sequence[Need], profiles: bytes, ask: Ask, *, others_wait: bool) -> FoundMixes | None:
        """The standing mixes for another plan; None where it is to search.

        profiles: digest of those of all models. others_wait: whether pods of no service wait. Where the stock has
        changed, the certificate is that of the search, with the work as what cut it short.
        """
        found = self.found
        if self.rested >= (MOST_RESTED if others_wait else self.rest) or profiles != found.profiles:
            return None
        asked = ask(needs, found.stay)
        digest = digest_of(replace(asked, needs=tuple(needs)), of_all_stock=True)
        if digest.needs != self.digest.needs:
            return None
        # The same instances must run as in the last search, or those of its mix.
        for need, before, mix in zip(needs, found.needs, found.mixes, strict=True):
            if need.running != before.running and (need.running_counts != mix.instances).any():
                return None
        is_same_stock = digest.stock == self.digest.stock
        if not is_same_stock and not (others_wait and is_feasible(asked, found.mixes)):
            return None
        self.rested += 1
        if is_same_stock:
            return found
        return replace(found, certificate=replace(found.certificate, cut_short="work"))


class Kept(NamedTuple):
    """State of one service's search."""

    digest: Digest
    state: SearchState


@dataclass(slots=True, eq=False)
class SearchMemory:
    """Searches of the last plan. Plain data; one that is lost costs work, and no correctness."""

    kept: dict[str, Kept] = field(default_factory=dict)
    """By service."""
    shared: tuple[Digest, ColumnPool] | None = None
    """Columns of the needs that compete for a stock, and the digest of their question."""
    variants: VariantMemory = field(default_factory=VariantMemory)
    """What explanations of the last plan solved."""
    standing: StandingMixes | None = None
    """Mixes that the next plans may keep without a search."""
    stood: dict[str, tuple[tuple[object, ...], Mix | None]] = field(default_factory=dict)
    """By service: what the last plan asked of a mix that may stand, and the answer."""
    modes: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """By service with a cache: what the last plan asked of its modes, and what is known of them."""
    found: dict[str, OwnAnswer] = field(default_factory=dict)
    """By service: the newest answer of a search beside the plans."""
    open: list[OwnQuestion] = field(default_factory=list)
    """Questions that the last plan had no work for."""
    _in_place: "SearchMemory | None" = None

    @property
    def in_place(self) -> "SearchMemory":
        """Memory of the same plan's searches in which running instances stay where they are: their stock is another."""
        if self._in_place is None:
            self._in_place = SearchMemory(found=self.found)
        return self._in_place

    def begun(self, question: MixQuestion, budget: Budget) -> SearchState:
        """State of the search for a question of one need: the kept one, or a new one that starts from its best mix.

        That may be one of another demand, with the instances that its shares need now.
        """
        (need,) = question.needs
        kept, answer, now = self.kept.get(need.service), self.found.get(need.service), digest_of(question)
        bound = -math.inf
        if answer is not None and question.is_exact and answer.digest == _own_digest(now, np.zeros(len(need.offers))):
            bound = answer.bound if math.isfinite(answer.bound) else bound
        # A kept bound holds for the same stock alone, or for any that is ample.
        if kept is not None and kept.digest == now and bound <= kept.state.bound:
            return kept.state
        known = [*(kept.state.candidates if kept else ()), *((mix,) for mix in (answer.mixes if answer else ()))]
        again = [(mix,) for (old,) in known if (mix := shared_again(need, old)) is not None]
        again.sort(key=lambda mixes: total_cost(question, mixes))
        best = next((mixes for mixes in again if is_feasible(question, mixes)), None)
        return begun(question, budget, best, bound)

    def learn(self, answers: Iterable[OwnAnswer]) -> None:
        """Takes answers to open questions; the next plan searches on from them."""
        learned = {each.service: each for each in answers}
        self.found.update(learned)
        if learned:
            self.standing = None

    def questions_of(self, pool: ColumnPool, gap: float) -> list[OwnQuestion]:
        """Questions of the needs of a pool whose gap a better column or proof may close, the widest gap first."""
        proof = pool.best_proof
        if proof is None:
            return []
        gaps = pool.least_gaps
        left = sorted((k for k, own in enumerate(gaps) if own > 0), key=gaps.__getitem__, reverse=True)
        asked = [own_question(pool.alone(k), proof.prices.instance[k], gap, proof.least[k]) for k in left]
        answered = {each.digest for each in self.found.values()}
        return [each for each in asked if each.digest not in answered]

    def deepen(self, pool: ColumnPool, found: Mapping[str, OwnAnswer] | None = None) -> None:
        """Adds what is found of its needs to a pool: columns, and bounds where the prices are those of its proof.

        found: by service; None: what was found beside the plans.
        """
        proof, bounds = pool.best_proof, dict[int, float]()
        for k, need in enumerate(pool.question.needs):
            answer = (self.found if found is None else found).get(need.service)
            if answer is None:
                continue
            for mix in filter(None, (shared_again(need, each) for each in answer.mixes)):
                pool.add(k, mix)
            asked = None if proof is None else own_question(pool.alone(k), proof.prices.instance[k], 0.0)
            if asked is not None and asked.digest == answer.digest:
                bounds[k] = answer.bound
        if proof is not None and bounds:
            pool.raise_proof(proof, bounds)

    def keep(self, questions: Sequence[MixQuestion], found: Sequence[SearchState | Reason]) -> None:
        """Remembers these searches, and no others. A question without a solution is asked anew."""
        self.kept = {
            question.needs[0].service: Kept(digest_of(question), state)
            for question, state in zip(questions, found, strict=True)
            if isinstance(state, SearchState)
        }

    def pool(self, question: MixQuestion) -> ColumnPool | None:
        """The columns kept for a question of several needs; None where it is another one."""
        if self.shared is None:
            return None
        kept, pool = self.shared
        if digest_of(question, of_all_stock=True) != kept:
            return None
        pool.has_running &= [each.running for each in question.needs] == [each.running for each in pool.question.needs]
        pool.question = question
        return pool

    def seed(self, pool: ColumnPool) -> None:
        """Adds what was kept of the same services on another stock or at another demand.

        Of another stock: all columns, and their choice if this stock holds it. Of another demand: the columns chosen,
        where they still serve it, and the prices, which the demand of single services hardly moves.
        """
        if self.shared is None:
            return
        (needs, _), old = self.shared
        if needs == needs_digest(pool.question):
            for k, columns in enumerate(old.columns):
                for column in columns:
                    pool.add(k, column.mix)
            mixes = tuple(column.mix for column in old.chosen if column is not None)
            if len(mixes) == len(pool.columns) and is_feasible(pool.question, mixes):
                pool.chosen = tuple(pool.with_instances(k, mix.instances) for k, mix in enumerate(mixes))
        elif is_of_same_offers(old.question, pool.question):
            for k, best in enumerate(old.chosen):
                if best is not None:
                    again = shared_again(pool.question.needs[k], best.mix)
                    for mix in filter(None, (best.mix, again)):
                        pool.add(k, mix)
            if old.best_proof is not None:
                pool.prices = old.best_proof.prices

    def keep_pool(self, pool: ColumnPool) -> None:
        self.shared = digest_of(pool.question, of_all_stock=True), pool
