"""ResourceClaims of a starting pod: whether they are allocated, and reserved for this pod."""

from collections.abc import Iterable

import msgspec

from simulator.controlplane.nodes.connection import Connection
from simulator.controlplane.nodes.pod_lifecycle import Pod

DeviceName = tuple[str, str, str]
"""Driver, pool, device."""


class _Result(msgspec.Struct, frozen=True):
    driver: str
    pool: str
    device: str


class _Devices(msgspec.Struct, frozen=True):
    results: tuple[_Result, ...] = ()


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Devices = _Devices()


class _Consumer(msgspec.Struct, frozen=True):
    uid: str


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] = ()


class _Meta(msgspec.Struct, frozen=True):
    uid: str


class _Claim(msgspec.Struct, frozen=True):
    metadata: _Meta
    status: _Status = _Status()


class PreparedClaims:
    """Devices with which pods of simulated nodes were started.

    A device that two claims hold is prepared for the first alone. The pod of the second never starts, as with a driver
    that checks.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._claim_of: dict[DeviceName, str] = {}
        """Device → uid of the claim that it was prepared for."""
        self._pods_of: dict[str, set[str]] = {}
        """Uid of a claim → uids of the pods that run with it."""

    async def prepare(self, pod: Pod) -> bool:
        """Whether the pod may start: every claim exists, is allocated and reserved for it, and its devices are free."""
        claims = [await self._claim(pod, name) for name in claim_names(pod)]
        found = [claim for claim in claims if claim is not None and claim.status.allocation is not None]
        if len(found) < len(pod.spec.resource_claims) or not all(_is_for(claim, pod) for claim in found):
            return False
        wanted = {name: claim.metadata.uid for claim in found for name in _devices(claim)}
        if any(self._claim_of.get(name, uid) != uid for name, uid in wanted.items()):
            return False
        self._claim_of |= wanted
        for claim in found:
            self._pods_of.setdefault(claim.metadata.uid, set()).add(pod.metadata.uid)
        return True

    def release(self, pod_uid: str) -> None:
        """Releases a pod whose containers are gone; a claim without other running pods frees its devices."""
        for uid in [uid for uid, pods in self._pods_of.items() if pod_uid in pods]:
            self._pods_of[uid].discard(pod_uid)
            if not self._pods_of[uid]:
                del self._pods_of[uid]
                self._claim_of = {name: claim for name, claim in self._claim_of.items() if claim != uid}

    async def _claim(self, pod: Pod, name: str) -> _Claim | None:
        path = f"/apis/resource.k8s.io/v1/namespaces/{pod.metadata.namespace}/resourceclaims/{name}"
        answer = await self._connection.insist("GET", path)
        return msgspec.json.decode(answer.body, type=_Claim) if answer.is_ok else None


def claim_names(pod: Pod) -> list[str]:
    """Names of known claims: a claim of a template may not exist yet."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    names = (each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims)
    return [name for name in names if name]


def _is_for(claim: _Claim, pod: Pod) -> bool:
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)


def _devices(claim: _Claim) -> Iterable[DeviceName]:
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    return ((each.driver, each.pool, each.device) for each in results)
