"""What the devices of a node have left beside those that claims hold, and an allocation of further claims in it.

As kube-scheduler's allocator: one device after the other is tried for one request after the other, and the first choice
in which all go together is taken. Source: Kubernetes 1.36, dynamic-resource-allocation/structured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from controller.api.notation import quantity
from controller.dra.inventory import CounterName, DeviceInventory, Listed
from controller.dra.objects import (
    Attribute,
    Constraint,
    Device,
    DeviceId,
    DeviceToleration,
    RequestPolicy,
    ResourceClaim,
)
from controller.dra.selectors import SelectorError

MOST_TRIES = 20_000
"""Devices that are tried for the claims of one pod on one node: 60 ms. Chosen: parts of eight GPUs take some hundred;
requests that exclude each other may take all combinations."""
MOST_RESULTS = 32
"""Devices of one claim. Source: resource/v1 types.go, `AllocationResultsMaxSize`."""

Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """One device request of a claim."""

    name: str
    class_name: str
    count: int | None
    """Number of devices; None: all devices of the node."""
    selectors: tuple[str, ...]
    """CEL expressions of its class and its own; a device must satisfy all."""
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()
    """Amounts that it requests of each device's capacity, by name."""

    def tolerates(self, listed: Listed) -> bool:
        return all(any(each.tolerates(taint) for each in self.tolerations) for taint in listed.taints)


@dataclass(frozen=True, slots=True)
class Given:
    """Device for one request."""

    request: ClaimRequest
    listed: Listed
    consumed: Amounts | None = None
    """What it takes of a device that others hold, too; None where it has the device alone."""
    counts: bool = True
    """Whether the counters of the device count for it: those of a shared device count once."""

    @property
    def milli(self) -> int:
        return self.listed.milli if self.consumed is None else self.listed.part(self.consumed)


Wanted = tuple[tuple[ClaimRequest, ...], tuple[Constraint, ...]]
"""Requests and constraints of one claim."""


class DeviceRoom:
    """What the devices of a node have left."""

    def __init__(self, inventory: DeviceInventory, claims: Iterable[ResourceClaim]) -> None:
        results = [result for claim in claims for result in claim.results]
        self.taken = {result.id for result in results if result.share_id is None}
        self.consumed: dict[DeviceId, dict[str, Decimal]] = {}
        for each in results:
            if each.share_id is not None:
                self._consume(each.id, {name: quantity(v) for name, v in each.consumed_capacity.items()})
        self._left: dict[CounterName, Decimal] = dict(inventory.counters)
        for listed in inventory.devices:
            if listed.id in self.taken or listed.id in self.consumed:
                self._count(listed, 1)
        self.overdrawn = sorted({name[:2] for name, left in self._left.items() if left < 0})
        """(driver, pool) of which claims hold more counters than there are; nothing that counts is given of these."""

    def take(self, request: ClaimRequest, listed: Listed) -> Given | None:
        """Take a device for a request; None where it cannot have it."""
        if listed.withheld or listed.id in self.taken or not request.tolerates(listed):
            return None
        consumed = capacity_for(request, listed.device)
        if consumed is None or not self._has(listed, consumed):
            return None
        is_shared = listed.device.allow_multiple_allocations
        counts = bool(listed.uses) and not (is_shared and listed.id in self.consumed)
        if counts:
            short = (self._left[name] < amount for name, amount in listed.uses.items())
            if (listed.id.driver, listed.id.pool) in self.overdrawn or any(short):
                return None
            self._count(listed, 1)
        if is_shared:
            self._consume(listed.id, consumed)
        else:
            self.taken.add(listed.id)
        return Given(request, listed, consumed if is_shared else None, counts)

    def put_back(self, given: Given) -> None:
        if given.counts:
            self._count(given.listed, -1)
        if given.consumed is None:
            self.taken.remove(given.listed.id)
            return
        self._consume(given.listed.id, {name: -amount for name, amount in given.consumed.items()})
        if not any(self.consumed[given.listed.id].values()) and given.counts:
            del self.consumed[given.listed.id]

    def _has(self, listed: Listed, amounts: Amounts) -> bool:
        before, has = self.consumed.get(listed.id, {}), listed.device.capacity
        return all(before.get(name, 0) + amount <= quantity(has[name].value) for name, amount in amounts.items())

    def _consume(self, device: DeviceId, amounts: Amounts) -> None:
        of_device = self.consumed.setdefault(device, {})
        for name, amount in amounts.items():
            of_device[name] = of_device.get(name, Decimal(0)) + amount

    def _count(self, listed: Listed, sign: int) -> None:
        for name, amount in listed.uses.items():
            self._left[name] -= sign * amount


class Allocation:
    """Search for devices for the claims of one pod on one node."""

    def __init__(
        self, room: DeviceRoom, claims: Sequence[Wanted], candidates: Callable[[ClaimRequest], Sequence[Listed]]
    ) -> None:
        """candidates: devices that satisfy the selectors of a request, in the order in which they are tried."""
        self._room = room
        self._constraints = [constraints for _, constraints in claims]
        self._requests = [(n, request) for n, (requests, _) in enumerate(claims) for request in requests]
        self._candidates = [self._tried(request, candidates(request)) for _, request in self._requests]
        self._given: list[list[Given]] = [[] for _ in claims]
        self._tries = 0

    def found(self) -> list[list[Given]] | None:
        """Devices of each claim; None where there are none. The room is less by them. Raises SelectorError."""
        return self._given if self._goes_on(0, 0, 0) else None

    def _tried(self, request: ClaimRequest, devices: Sequence[Listed]) -> Sequence[Listed]:
        if request.count is not None:
            return devices
        # All: those that have enough capacity left. Each of the others must be given.
        amounts = [(each, capacity_for(request, each.device)) for each in devices]
        return [each for each, asked in amounts if asked is not None and self._room._has(each, asked)]

    def _goes_on(self, number: int, has: int, first: int) -> bool:
        """number: of the request; has: devices that it was given; first: candidate to be tried next."""
        if number == len(self._requests):
            return True
        (claim, request), devices = self._requests[number], self._candidates[number]
        wants = len(devices) if request.count is None else request.count
        if has == wants:
            return wants > 0 and self._goes_on(number + 1, 0, 0)
        for n in range(first, len(devices) if request.count is not None else first + 1):
            self._tries += 1
            if self._tries > MOST_TRIES:
                raise SelectorError(f"its requests can be combined in more than {MOST_TRIES} ways")
            given = self._room.take(request, devices[n])
            if given is None:
                continue
            if len(self._given[claim]) < MOST_RESULTS and self._agrees(claim, given):
                self._given[claim].append(given)
                if self._goes_on(number, has + 1, n + 1):
                    return True
                self._given[claim].pop()
            self._room.put_back(given)
        return False

    def _agrees(self, claim: int, given: Given) -> bool:
        """Whether the device meets the claim's constraints beside those that it was given before."""
        for each in self._constraints[claim]:
            if each.requests and given.request.name not in each.requests:
                continue
            name = each.match_attribute or each.distinct_attribute or ""
            value = attribute_of(given.listed, name)
            if value in (None, Attribute()):
                return False
            for other in self._given[claim]:
                if each.requests and other.request.name not in each.requests:
                    continue
                if (attribute_of(other.listed, name) == value) == bool(each.distinct_attribute):
                    return False
        return True


def attribute_of(listed: Listed, name: str) -> Attribute | None:
    """Attribute by its full name `domain/name`; a driver may omit its own domain."""
    has = listed.device.attributes
    return has.get(name) or has.get(name.removeprefix(f"{listed.id.driver}/"))


def capacity_for(request: ClaimRequest, device: Device) -> dict[str, Decimal] | None:
    """Amounts that an allocation takes of each capacity of a device; None where the device cannot serve the request.

    Raises SelectorError for a capacity that cannot be read. Source: structured, consumable_capacity.go.
    """
    asked = dict(request.capacity)
    if not asked.keys() <= device.capacity.keys():
        return None
    amounts = dict[str, Decimal]()
    for name, capacity in device.capacity.items():
        policy = capacity.request_policy or RequestPolicy()
        try:
            amount = quantity(asked.get(name, capacity.value if policy.default is None else policy.default))
            found = _by_policy(amount, policy, is_asked=name in asked)
            is_enough = found is not None and found <= quantity(capacity.value)
        except ValueError as error:
            raise SelectorError(f"the capacity {name} {error}") from error
        if found is None or not is_enough:
            return None
        amounts[name] = found
    return amounts


def _by_policy(amount: Decimal, policy: RequestPolicy, *, is_asked: bool) -> Decimal | None:
    """The amount, rounded up to the next that the policy allows; None where it allows none."""
    if policy.valid_range is not None:
        low = quantity(policy.valid_range.min)
        if is_asked:
            step = quantity(policy.valid_range.step) if policy.valid_range.step is not None else None
            amount = max(amount, low)
            amount = low + ((amount - low) / step).to_integral_value(ROUND_CEILING) * step if step else amount
        highest = policy.valid_range.max
        return None if highest is not None and amount > quantity(highest) else amount
    if policy.valid_values and is_asked:
        return next((value for value in map(quantity, policy.valid_values) if value >= amount), None)
    return amount
