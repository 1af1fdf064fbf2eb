"""Standing mixes: those of an earlier plan, which a plan keeps where another search would find nothing, or can wait.

A search that ended with a gap goes on in the next plan, and rests ever longer after plans in which it found nothing.
While pods of no service wait, mixes that still have seats stand for most plans, whatever became of the stock: the pods
are placed instead of waiting for a search.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.plans import Certificate, ServicePlan
from placement.mix.feasibility import is_feasible
from placement.mix.problem import Mix, MixQuestion, Need
from placement.mix.question_digests import needs_digest, stock_digest
from placement.mix.stock_builder import Claimant

MOST_RESTED = 19
"""Plans in a row that keep mixes although a search could find better ones. Chosen: at a plan a second, one pod in
twenty waits for a search, and a search has fifteen plans while an instance is held (`hold_s`)."""

LEAST_PROGRESS = 1e-6
"""Fraction of the objective below which a change of it or of its bound is none."""

Ask = Callable[[Sequence[Need], Collection[Claimant]], MixQuestion]
"""Question of the needs, with the seats around the instances that stay."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
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

    def is_better_than(self, before: "Found") -> bool:
        """Whether the search has found a cheaper mix or a better bound since then."""
        now, then = self.certificate, before.certificate
        least = LEAST_PROGRESS * max(abs(then.objective), 1e-12)
        return now.objective < then.objective - least or now.bound > then.bound + least


@dataclass(slots=True, eq=False)
class Standing:
    """Mixes of the last plan that searched, and for how long the next search can wait."""

    found: Found
    needs: bytes
    stock: bytes
    rest: int
    """Plans for which the search rests while its question stays the same."""
    rested: int = 0
    """Plans since the last search."""

    @classmethod
    def after(cls, found: Found, ask: Ask, before: "Standing | None") -> "Standing":
        """After a plan that searched. before: what stood until then."""
        asked = ask(found.needs, found.stay)
        now = cls(found, _digest(asked, found.needs), stock_digest(asked), rest=0)
        is_same = before is not None and (now.needs, now.stock) == (before.needs, before.stock)
        if before is not None and is_same and not found.is_better_than(before.found):
            now.rest = min(MOST_RESTED, 2 * before.rest + 1)
        return now

    def kept(self, needs: Sequence[Need], profiles: bytes, ask: Ask, *, others_wait: bool) -> Found | None:
        """The standing mixes for another plan; None where it is to search.

        profiles: digest of those of all models. others_wait: whether pods of no service wait. Where the stock has
        changed, the certificate is that of the search, with the work as what cut it short.
        """
        if self.rested >= (MOST_RESTED if others_wait else self.rest) or profiles != self.found.profiles:
            return None
        asked = ask(needs, self.found.stay)
        if _digest(asked, needs) != self.needs or not self._runs_as_expected(asked, needs):
            return None
        is_same_stock = stock_digest(asked) == self.stock
        if not is_same_stock and not (others_wait and is_feasible(asked, self.found.mixes)):
            return None
        self.rested += 1
        if is_same_stock:
            return self.found
        return replace(self.found, certificate=replace(self.found.certificate, cut_short="work"))

    def _runs_as_expected(self, asked: MixQuestion, needs: Sequence[Need]) -> bool:
        """Whether the same instances run as in the last search, or, where changes have no price, those of its mix."""
        for need, before, mix in zip(needs, self.found.needs, self.found.mixes, strict=True):
            counts = zip(need.offers, mix.instances.tolist(), strict=True)
            has_changed = all(need.running_count(offer) == count for offer, count in counts)
            if not (need.running == before.running or (has_changed and not asked.counts_changes_of(need))):
                return False
        return True


def _digest(asked: MixQuestion, needs: Sequence[Need]) -> bytes:
    """Digest of the needs without the names of their stocks, which change with what is free."""
    return needs_digest(replace(asked, needs=tuple(needs)))
