"""Construction of the observer and cluster view from settings, the same for the operator and for one-off commands."""

from collections.abc import Callable, Mapping

from cluster.snapshot import Snapshot
from controller.api.foreign_kinds import FOREIGN_KINDS, ForeignKind
from controller.dra.rewriting import holder_of
from controller.dra.translation import ClaimTranslation
from controller.kube.cache import Cache
from controller.kube.cluster_view import SeenClaim
from controller.kube_world.cached_view import CachedView, Deployment, instant_or_none, is_ours
from controller.kube_world.observer import Caches, Observer, settle_heap
from controller.kube_world.quotas import ResourceQuota
from controller.kube_world.refusals import FailedPod
from controller.placers.pools import Pool, pool_mode
from controller.settings import OperatorSettings
from controller.snapshot.builder import FACTS
from controller.snapshot.scalers import Fact


def pools_from(settings: OperatorSettings) -> tuple[Pool, ...]:
    return tuple(Pool(pool.placer, pool.selector, pool.shares) for pool in settings.pools)


def allocates_claims(settings: OperatorSettings) -> bool:
    """Whether ResourceSlices, ResourceClaims and DeviceClasses are read."""
    return any(pool.placer == "dra" for pool in settings.pools)


def foreign_kinds_from(settings: OperatorSettings) -> tuple[ForeignKind, ...]:
    """Kinds of other projects by which pods are gangs."""
    return FOREIGN_KINDS if settings.groups_of_others else ()


def device_classes_from(settings: OperatorSettings) -> dict[str, str]:
    """DeviceClass by extended resource name: a driver's chart installs a class with the driver's name."""
    return {resource: driver for driver, resource in sorted(settings.dra_drivers.items(), reverse=True)}


def observer_from(
    settings: OperatorSettings,
    caches: Caches,
    clock: Callable[[], float],
    *,
    at_first_sight: Callable[[], None] = settle_heap,
    facts: tuple[Fact, ...] = FACTS,
    is_guarded: Callable[[], bool] = lambda: True,
) -> Observer:
    """clock: seconds since the epoch. facts: parts of the snapshot from objects of Tonnage's kinds.

    is_guarded: whether the API server lets only Tonnage write its annotations.
    """
    pools = pools_from(settings)

    def is_allocated_here(labels: Mapping[str, str]) -> bool:
        return pool_mode(pools, labels) == "dra"

    return Observer(
        caches,
        clock,
        is_ours=is_ours,
        new_book=lambda: ClaimTranslation(settings.dra_drivers, is_allocated_here),
        at_first_sight=at_first_sight,
        facts=facts,
        is_guarded=is_guarded,
    )


def sightings_from(
    settings: OperatorSettings,
    observer: Observer,
    caches: Caches,
    deployments: Cache[Deployment],
    completed: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
    failed: Cache[FailedPod] | None = None,
    is_placed_here: Callable[[str], bool] = lambda _: True,
    quotas: Cache[ResourceQuota] | None = None,
) -> CachedView:
    """completed: adds data from other sources than objects, such as power. The last three: as of CachedView."""
    return CachedView(
        lambda: completed(observer.observe()),
        pods=caches.pods,
        own=caches.own,
        deployments=deployments,
        nodes=caches.nodes,
        allocates_claims=allocates_claims(settings),
        unallocated=lambda: observer.with_book(lambda book: book.reasons),
        half_made_claims=lambda: observer.with_book(_half_made),
        failed=failed,
        is_placed_here=is_placed_here,
        groups=caches.groups,
        quotas=quotas,
    )


def _half_made(book: ClaimTranslation) -> tuple[SeenClaim, ...]:
    return tuple(
        SeenClaim(
            name,
            claim.metadata.uid,
            book.users(name),
            holder_of(name),
            instant_or_none(claim.metadata.annotations.placed_at),
        )
        for name, claim in sorted(book.claims_of_unbound_pods().items())
    )
