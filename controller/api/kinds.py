"""Registry of kinds, from which all other lists of kinds are derived."""

from collections.abc import Iterable

from controller.api import (
    core_v1,
    fault_incident,
    gang,
    gpu_type,
    health_policy,
    model_profile,
    model_service,
    power_domain,
    sandbox_policy,
    scaling_policy,
    team,
)
from controller.api.kind import Kind

KINDS = (
    gpu_type.KIND,
    model_profile.KIND,
    model_service.KIND,
    scaling_policy.KIND,
    gang.KIND,
    power_domain.KIND,
    health_policy.KIND,
    fault_incident.KIND,
    sandbox_policy.KIND,
    team.KIND,
    core_v1.NODE,
    core_v1.POD,
)


def own_kinds(kinds: Iterable[Kind] = KINDS) -> tuple[Kind, ...]:
    """The kinds of Tonnage's API group, in the registry's order."""
    return tuple(kind for kind in kinds if kind.is_own)


OWN_KINDS = own_kinds()


def kind_of(api_version: str, name: str, kinds: Iterable[Kind] = KINDS) -> Kind | None:
    return next((kind for kind in kinds if (kind.api_version, kind.name) == (api_version, name)), None)
