"""Variant memory: costs of the changed questions (more stock, a looser SLO, no headroom) by which a plan is explained.

A variant is as hard as the question itself, and the same one is asked in every plan until something changes.
"""

from dataclasses import dataclass, field

from placement.budget import Budget
from placement.mix.optimizer import answer_mix
from placement.mix.problem import MixAnswer, MixQuestion
from placement.mix.question_digests import question_digest

MORE_WORK = 2.0
"""Factor on the work that did not suffice for a variant from which it is tried again. Chosen."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What is known of a variant."""

    cost_per_hour: float | None
    """None: the work did not suffice, or there is no answer."""
    work: float
    """Work that it was given."""


@dataclass(slots=True, eq=False)
class VariantMemory:
    """Variants of the last plan and of the present one, by digest. One that is lost costs work, and no correctness."""

    before: dict[bytes, Variant] = field(default_factory=dict)
    now: dict[bytes, Variant] = field(default_factory=dict)

    def begin(self) -> None:
        """Begins a plan: what it does not ask for again is forgotten with the next one."""
        self.before, self.now = self.now, {}

    def cost_per_hour(self, question: MixQuestion, budget: Budget) -> float | None:
        """Cost of the best answer, from memory or solved within the budget; None where it is not known."""
        digest = question_digest(question)
        known = self.now.get(digest) or self.before.get(digest)
        if known is None or (known.cost_per_hour is None and budget.work >= MORE_WORK * known.work):
            if not budget.allows_more():
                return None
            known = self._solved(question, budget)
            if budget.time_ran_out and known.cost_per_hour is None:
                return None  # another plan may have more time for the same work
        self.now[digest] = known
        return known.cost_per_hour

    def _solved(self, question: MixQuestion, budget: Budget) -> Variant:
        work = budget.work
        answer = answer_mix(question, budget)
        if isinstance(answer, MixAnswer) and not answer.certificate.cut_short:
            return Variant(answer.cost_per_hour, work)
        return Variant(None, work)
