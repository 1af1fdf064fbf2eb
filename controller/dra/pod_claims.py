"""Which ResourceClaims a pod uses."""

from dataclasses import dataclass

from controller.kube.structs import Pod


@dataclass(frozen=True, slots=True)
class Use:
    """One claim of a pod."""

    claim: str
    """`namespace/name`; empty while it was not made from its template yet."""
    is_made_for_it: bool
    """From a template: then it must belong to the very pod."""


def uses_of(pod: Pod) -> tuple[Use, ...]:
    """In the order of the pod. A claim that its template's controller found not to be needed is left out."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    namespace, found = pod.metadata.namespace, []
    for each in pod.spec.resource_claims:
        if each.resource_claim_name is not None:
            found.append(Use(f"{namespace}/{each.resource_claim_name}", is_made_for_it=False))
        elif each.name not in made:
            found.append(Use("", is_made_for_it=True))
        elif (name := made[each.name]) is not None:
            found.append(Use(f"{namespace}/{name}", is_made_for_it=True))
    return tuple(found)
