"""Services whose Deployments the API server refuses, as for a template that no pod can have: when each is tried again.

Every plan decides the same again, and whoever creates services decides how many there are.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from cluster.errors import ActionError
from controller.kube.cluster_view import SeenService
from controller.kube.errors import KubeWriteError

FIRST_S, LONGEST_S = 1.0, 60.0
"""Pause after a first refusal, and the longest; each further one doubles it. Chosen: a quota or a webhook that was in
the way is seldom gone sooner, and who waits for it waits for a minute at most."""
REFUSED = (400, 403, 404, 422)
"""HTTP statuses of a write that fails again as long as neither it nor what is in its way changes."""
REMEMBERED = 10_000
"""Number of services that are remembered, 5 MB."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    uid: str
    generation: int
    words: str
    pause_s: float
    until_s: float
    """Of a monotonic clock."""

    def is_of(self, seen: SeenService) -> bool:
        return (self.uid, self.generation) == (seen.uid, seen.generation)


@dataclass(slots=True)
class RefusedScales:
    """The last refusal of each service, in order of time. Instants are of one monotonic clock."""

    _by_service: OrderedDict[str, _Refusal] = field(default_factory=OrderedDict)

    def check(self, seen: SeenService, at_s: float) -> None:
        """Raises ActionError, in the words of the refusal, for a service that is not to be tried again yet.

        One that was changed since is tried at once.
        """
        last = self._by_service.get(seen.name)
        if last is not None and last.is_of(seen) and at_s < last.until_s:
            raise ActionError(last.words)

    def note(self, seen: SeenService, error: ActionError, at_s: float) -> None:
        """Notes that a write of a service failed."""
        if not isinstance(error, KubeWriteError) or error.refusal.status not in REFUSED:
            return
        last = self._by_service.get(seen.name)
        goes_on = last is not None and last.is_of(seen) and at_s < last.until_s + LONGEST_S
        pause_s = min(LONGEST_S, 2 * last.pause_s) if last is not None and goes_on else FIRST_S
        self._by_service[seen.name] = _Refusal(seen.uid, seen.generation, str(error), pause_s, at_s + pause_s)
        self._by_service.move_to_end(seen.name)
        if len(self._by_service) > REMEMBERED:
            self._by_service.popitem(last=False)
