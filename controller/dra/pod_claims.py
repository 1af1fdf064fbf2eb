"""ResourceClaims that a pod uses."""

from dataclasses import dataclass

from controller.kube.structs import Pod


@dataclass(frozen=True, slots=True)
class Use:
    """Use of one claim by a pod."""

    claim: str
    """`namespace/name` of the claim; empty until it is generated from its template."""
    is_generated: bool
    """Whether it is generated from a template; then the pod must own it."""


def uses_of(pod: Pod) -> tuple[Use, ...]:
    """Claims of a pod, in order of its spec, without those that the template's controller found unnecessary."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    namespace, found = pod.metadata.namespace, []
    for each in pod.spec.resource_claims:
        if each.resource_claim_name is not None:
            found.append(Use(f"{namespace}/{each.resource_claim_name}", is_generated=False))
        elif each.name not in made:
            found.append(Use("", is_generated=True))
        elif (name := made[each.name]) is not None:
            found.append(Use(f"{namespace}/{name}", is_generated=True))
    return tuple(found)
