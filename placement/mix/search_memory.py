"""Search memory: what the last plan found for each question, to go on from where the same question is asked again.

A limit of work ends a search before its gap is closed. Without memory the next plan would repeat it and stop at the
same gap; with it each plan adds to what is known, and a question that is solved costs nothing more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.plans import Reason
from placement.budget import Budget
from placement.mix.columns import ColumnPool
from placement.mix.feasibility import is_feasible
from placement.mix.problem import MixQuestion, objective_of
from placement.mix.question_digests import (
    need_digest,
    needs_digest,
    own_stock_digest,
    running_digest,
    runnings_digest,
    stock_digest,
)
from placement.mix.search import SearchState, begun
from placement.mix.standing import Standing
from placement.mix.variant_memory import VariantMemory


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """State of one service's search."""

    need: bytes
    """Digest of its need, without the running instances."""
    running: bytes
    """Digest of the running instances, where the objective counts changes."""
    stock: bytes
    """Digest of the stock, as far as the need's mixes depend on it."""
    state: SearchState
    counts_changes: bool
    """Whether the bound includes the price of changes: it then holds for the same running instances alone."""


@dataclass(slots=True, eq=False)
class SearchMemory:
    """Searches of the last plan. Plain data; one that is lost costs work, and no correctness."""

    kept: dict[str, Kept] = field(default_factory=dict)
    """By service."""
    shared: tuple[bytes, bytes, bytes, ColumnPool] | None = None
    """Digests of the needs that compete for a stock, of that stock, of the running instances, and their columns."""
    variants: VariantMemory = field(default_factory=VariantMemory)
    """What explanations of the last plan solved."""
    standing: Standing | None = None
    """Mixes that the next plans may keep without a search."""
    _in_place: "SearchMemory | None" = None

    @property
    def in_place(self) -> "SearchMemory":
        """Memory of the same plan's searches in which running instances stay where they are: their stock is another."""
        if self._in_place is None:
            self._in_place = SearchMemory()
        return self._in_place

    def begun(self, question: MixQuestion, budget: Budget) -> SearchState:
        """State of the search for a question of one need: the kept one, or a new one that starts from its best mix.

        The kept bound holds for the same stock alone, or for any that is ample, and, where it includes changes, for the
        same running instances.
        """
        (need,) = question.needs
        kept = self.kept.get(need.service)
        if kept is None or kept.need != need_digest(question, need):
            return begun(question, budget=budget)
        is_same_stock = kept.stock == own_stock_digest(question, need)
        if is_same_stock and kept.running == running_digest(question, need):
            return kept.state
        best = min(kept.state.candidates, key=lambda mixes: objective_of(question, mixes), default=None)
        holds = is_same_stock and not kept.counts_changes
        return begun(question, best, kept.state.bound, None) if holds else begun(question, best, budget=budget)

    def keep(self, questions: Sequence[MixQuestion], found: Sequence[SearchState | Reason]) -> None:
        """Remembers these searches, and no others. A question without a solution is asked anew."""
        self.kept = {
            question.needs[0].service: Kept(
                need_digest(question, question.needs[0]),
                running_digest(question, question.needs[0]),
                own_stock_digest(question, question.needs[0]),
                state,
                question.counts_changes,
            )
            for question, state in zip(questions, found, strict=True)
            if isinstance(state, SearchState)
        }

    def pool(self, question: MixQuestion) -> ColumnPool | None:
        """The columns kept for a question of several needs; None where it is another one."""
        if self.shared is None or self.shared[:2] != (needs_digest(question), stock_digest(question)):
            return None
        if self.shared[2] != runnings_digest(question):
            self.keep_pool(self.shared[3].asked_with(question))
        pool = self.shared[3]
        pool.question = question
        return pool

    def seed(self, pool: ColumnPool) -> None:
        """Adds the columns kept for the same needs and another stock, and their choice if this stock holds it."""
        if self.shared is None or self.shared[0] != needs_digest(pool.question):
            return
        old = self.shared[3]
        for k, columns in enumerate(old.columns):
            for column in columns:
                pool.add(k, column.mix)
        mixes = tuple(column.mix for column in old.chosen if column is not None)
        if len(mixes) == len(pool.columns) and is_feasible(pool.question, mixes):
            pool.chosen = tuple(pool.known(k, mix) for k, mix in enumerate(mixes))

    def keep_pool(self, pool: ColumnPool) -> None:
        question = pool.question
        self.shared = needs_digest(question), stock_digest(question), runnings_digest(question), pool
