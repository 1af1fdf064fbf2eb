"""Push endpoint: samples of demand from programs, authorised by the API server; decisions without a socket."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from autoscaler.demand.loads import Role
from cluster.clock import Clock
from controller.api.labels import GROUP
from controller.loops.autoscaler.access_review import Access, AccessReviews, TooBusyError
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.sources.pushed import BadPushError, Pushed, pushed

PATH = "/v1/demand"
MOST_BYTES = 65_536
"""Largest body: a histogram of 64 × 64 buckets has 30 kB."""
BURST = 10.0
"""Requests of one policy that are accepted at once; then one a second."""
PER_S = 1.0

Status = Literal[202, 400, 401, 403, 404, 429, 503]


@dataclass(frozen=True, slots=True)
class Reply:
    """Response to a push."""

    status: Status
    words: str
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class _Budget:
    left: float
    at_s: float


class PushEndpoint:
    """Takes pushes while this replica leads: only the leader keeps samples."""

    def __init__(
        self,
        measured: Measured,
        reviews: AccessReviews,
        roles: Callable[[str], Iterable[Role] | None],
        leads: Callable[[], bool],
        clock: Clock,
        monotonic: Clock,
        on_push: Callable[[str], None] = lambda _result: None,
    ) -> None:
        """roles: roles that a policy lets be pushed, by `namespace/name`; None: there is no such policy.
        clock: seconds since the epoch. monotonic: seconds, for the limits. on_push: called after each request of an
        authorised sender, with `ok` or the reason of the refusal.
        """
        self._measured, self._reviews, self._roles, self._leads = measured, reviews, roles, leads
        self._clock, self._monotonic, self._on_push = clock, monotonic, on_push
        self._budgets: dict[str, _Budget] = {}

    async def take(self, authorization: str, body: bytes) -> Reply:
        """Response to a request with this Authorization header."""
        if not self._leads():
            return Reply(503, "this replica does not lead; ask again, the other one does", 1)
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Reply(401, "a bearer token is needed")
        try:
            push = pushed(body, self._clock())
            return await self._checked(token.strip(), push)
        except BadPushError as error:
            return Reply(400, str(error)[:300])
        except TooBusyError as error:
            return Reply(503, str(error)[:300], 1)

    async def _checked(self, token: str, push: Pushed) -> Reply:
        access = Access("update", GROUP, "scalingpolicies/demand", push.namespace, push.name)
        if not await self._reviews.allows_token(token, access):
            return Reply(403, f"the token may not update scalingpolicies/demand {push.name} in {push.namespace}")
        # Only a sender that may push learns whether the policy exists, and uses up its budget.
        policy = f"{push.namespace}/{push.name}"
        allowed = self._roles(policy)
        if allowed is None:
            self._on_push("PolicyNotFound")
            return Reply(404, f"there is no ScalingPolicy {policy}")
        unwanted = push.values.keys() - set(allowed)
        if unwanted:
            self._on_push("RoleNotPushed")
            return Reply(400, f"the policy has no push source for {', '.join(sorted(unwanted))}")
        if not self._is_within_budget(policy):
            self._on_push("TooManyRequests")
            return Reply(429, "more than one request a second", 1)
        for role, value in push.values.items():
            self._measured.put_sample(policy, role, push.at_s, value)
        if push.lengths is not None:
            self._measured.put_lengths(policy, push.lengths)
        self._on_push("ok")
        return Reply(202, "taken")

    def _is_within_budget(self, policy: str) -> bool:
        now_s = self._monotonic()
        budget = self._budgets.get(policy, _Budget(BURST, now_s))
        left = min(BURST, budget.left + (now_s - budget.at_s) * PER_S)
        if left < 1:
            return False
        # Policies that exist are few; those that were deleted are forgotten with their full budgets.
        self._budgets = {name: each for name, each in self._budgets.items() if now_s - each.at_s < BURST / PER_S}
        self._budgets[policy] = _Budget(left - 1, now_s)
        return True
