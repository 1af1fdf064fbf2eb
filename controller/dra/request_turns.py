"""Turns of claims' requests: which are matched with the fleet, so that claims of one namespace hold up no other's."""

from collections.abc import Callable, Mapping

from controller.dra.feasibility import MOST_KNOWN
from controller.dra.requests import ClaimRequests


def in_turns(
    wanted: Mapping[str, Mapping[str, ClaimRequests]], is_known: Callable[[str], bool]
) -> dict[str, ClaimRequests]:
    """Requests by digest: the first of each namespace, then the second of each; of a namespace MOST_KNOWN at most.

    wanted: requests by digest, by pod (`namespace/name`). Of a namespace those that are known come first, so that new
    pods displace none; then by name of the pod.
    """
    of: dict[str, dict[str, ClaimRequests]] = {}
    for pod in sorted(wanted):
        of.setdefault(pod.partition("/")[0], {}).update(wanted[pod])
    queues = [sorted(each.items(), key=lambda one: not is_known(one[0])) for _, each in sorted(of.items())]
    return {
        digest: requests
        for turn in range(min(MOST_KNOWN, max(map(len, queues), default=0)))
        for queue in queues
        for digest, requests in queue[turn : turn + 1]
    }
