"""Token bucket: how often one pod may connect or write before it has to wait."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """So many at once, and so many a second in the long run."""

    per_s: float
    most: float
    left: float
    at_s: float

    def filled(self, now_s: float) -> "TokenBucket":
        """The bucket at this instant."""
        return replace(self, left=min(self.most, self.left + self.per_s * max(0.0, now_s - self.at_s)), at_s=now_s)

    def taken(self) -> "TokenBucket | None":
        """The bucket with one token less; None where none is left."""
        return replace(self, left=self.left - 1) if self.left >= 1 else None


def full(per_s: float, most: float, now_s: float) -> TokenBucket:
    return TokenBucket(per_s, most, most, now_s)
