"""What a ResourceClaim asks for, and whether the devices of a node can give it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from controller.dra.inventory import Inventory, Listed
from controller.dra.objects import Attribute, DeviceClass, DeviceRequest, DeviceSelector, ResourceClaim
from controller.dra.selectors import Selector, selector
from controller.dra.undecided import SelectorError, UnsupportedSelectorError


class UnsupportedClaimError(ValueError):
    """The claim asks in a way that Tonnage does not allocate (yet), or names a class that is not there."""


@dataclass(frozen=True, slots=True)
class Request:
    name: str
    class_name: str
    count: int | None
    """None: all devices of the node."""
    selectors: tuple[str, ...]
    """Expressions of its class and its own; a device must meet all."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be allocated for one claim."""

    requests: tuple[Request, ...]
    shared: tuple[str, ...] = ()
    """Attributes in which all devices must agree."""

    @property
    def digest(self) -> str:
        """The same for claims that the same nodes can serve."""
        text = repr((sorted({s for r in self.requests for s in r.selectors}), self.shared, self.wants_all))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def wants_all(self) -> bool:
        return any(request.count is None for request in self.requests)

    def count_on(self, inventory: Inventory) -> int:
        """How many devices it takes of this node."""
        return sum(len(inventory.devices) if r.count is None else r.count for r in self.requests)


def ask_of(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Ask:
    """Raises UnsupportedClaimError."""
    devices = claim.spec.devices
    requests = tuple(_request(each, classes) for each in devices.requests)
    if len(requests) > 1 and any(request.count is None for request in requests):
        raise UnsupportedClaimError("a request for All devices beside others is not supported; ask for a count")
    if any(constraint.distinct_attribute for constraint in devices.constraints):
        raise UnsupportedClaimError("the constraint distinctAttribute is not supported")
    shared = sorted({c.match_attribute for c in devices.constraints if c.match_attribute})
    return Ask(requests, tuple(shared))


def _request(request: DeviceRequest, classes: Mapping[str, DeviceClass]) -> Request:
    what, exact = f"request {request.name!r}", request.exactly
    if exact is None:
        raise UnsupportedClaimError(f"{what} is a list of alternatives (firstAvailable), which is not supported")
    if exact.admin_access:
        raise UnsupportedClaimError(f"{what} asks for admin access, which Tonnage does not give")
    if exact.capacity is not None:
        raise UnsupportedClaimError(f"{what} asks for a share of a device's capacity, which is not supported")
    if exact.allocation_mode not in ("ExactCount", "All"):
        raise UnsupportedClaimError(f"{what} has the allocation mode {exact.allocation_mode!r}, which is not known")
    known = classes.get(exact.device_class_name)
    if known is None:
        raise UnsupportedClaimError(f"{what} names DeviceClass {exact.device_class_name!r}, which is not there")
    selectors = tuple(_checked(each, what) for each in (*known.spec.selectors, *exact.selectors))
    count = None if exact.allocation_mode == "All" else exact.count
    return Request(request.name, exact.device_class_name, count, selectors)


def _checked(written: DeviceSelector, what: str) -> str:
    try:
        return selector(written.cel.expression).text
    except UnsupportedSelectorError as error:
        raise UnsupportedClaimError(f"a selector of {what}: {error}") from error


def fits(ask: Ask, inventory: Inventory) -> bool:
    """Whether any devices of the node that are not withheld will do.

    A node of which only some devices match does not: Tonnage chooses among all devices of a node, which are of one
    type. Raises SelectorError where a selector cannot be decided.
    """
    usable = inventory.usable
    if not usable or (ask.wants_all and len(usable) < len(inventory.devices)):
        return False
    agrees = all(_agree(attribute, usable) for attribute in ask.shared)
    return agrees and all(matches(request, listed) for request in ask.requests for listed in usable)


def matches(request: Request, listed: Listed) -> bool:
    """Raises SelectorError."""
    return all(_compiled(text).matches(listed.id.driver, listed.device) for text in request.selectors)


def _compiled(text: str) -> Selector:
    try:
        return selector(text)
    except UnsupportedSelectorError as error:  # it was compiled once already
        raise SelectorError(str(error)) from error


def _agree(attribute: str, devices: tuple[Listed, ...]) -> bool:
    values = {_attribute(attribute, listed) for listed in devices}
    return len(values) == 1 and None not in values


def _attribute(name: str, listed: Listed) -> Attribute | None:
    """By its full name `domain/name`; a driver may leave its own domain away."""
    own = name.removeprefix(f"{listed.id.driver}/")
    return listed.device.attributes.get(name) or listed.device.attributes.get(own)
