"""A tenant with rights in one namespace, and canaries of another namespace beside it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.controlplane.faults.canaries import Canaries
from tests.controlplane.faults.scenarios import DELAY_S
from tests.controlplane.faults.stage import NotConvergedError, Play
from tests.controlplane.faults.truth import OURS, lasting_untruths, untrue
from tests.controlplane.faults.workload import Object, service
from tests.controlplane.plain_api import MERGE_PATCH, Answer, PlainApi
from tests.until import comes_true

TENANT = "mallory"
"""A user with the role `edit` in one namespace and no other right."""
TRUE_WITHIN_S = 60.0
"""Time until every status is true once the tenant has stopped, seconds."""


class Tenant:
    """One namespace, and who may edit it."""

    def __init__(self, play: Play) -> None:
        self.play, self.namespace = play, f"{play.namespace}-tenant"
        play.add_namespace(self.namespace)
        admin = play.stage.admin.within(self.namespace)
        admin("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT}")
        self.api = PlainApi(play.stage.plane.kubeconfig, TENANT, "system:authenticated")
        play.stack.callback(self.api.close)
        # A role is in force a moment after it was given.
        if not comes_true(lambda: self.api.send("GET", self.pods).is_ok, 30.0):
            raise NotConvergedError("the tenant has no rights")

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def quota(self, hard: Mapping[str, str]) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "share"},
            "spec": {"hard": dict(hard)},
        }
        self.play.stage.admin.within(self.namespace)("create", "-f", "-", stdin=quota)

    def create(self, obj: Object, path: str = "") -> Answer:
        return self.api.send("POST", path or self.pods, obj)

    def patch(self, path: str, body: Object) -> Answer:
        return self.api.send("PATCH", path, body, content_type=MERGE_PATCH)

    def tries(self, what: str, answer: Answer) -> None:
        """Counts what the API server made of something that no tenant may do."""
        self.play.injected[f"{what}: {'TAKEN' if answer.is_ok else 'refused'}"] += 1
        if answer.is_ok:
            raise AssertionError(f"{what} was let through")


@contextmanager
def beside_canaries(play: Play, operators: int = 1, **settings: Any) -> Iterator[Tenant]:
    """A tenant with a free hand, and canaries of another namespace meanwhile, with a service that shall stay Ready.

    Afterwards every status of both must become true.
    """
    neighbour = f"{play.namespace}-canary"
    tenant, api = Tenant(play), play.api()
    play.start(operators, settings={"interval_s": 1.0, **settings}, delay_s=DELAY_S)
    play.leader()
    if not play.has_canaries:
        yield tenant
        return
    play.add_namespace(neighbour)
    play.stage.admin.within(neighbour)("apply", "-f", "-", stdin=service(neighbour))
    if not comes_true(lambda: not untrue(api, [neighbour]) and _serves(api, neighbour), 60.0):
        raise NotConvergedError(f"the canaries' service is not Ready: {untrue(api, [neighbour])}")
    canaries = Canaries(play.api(), neighbour, play.stage.witness.placed_at_s.get)
    play.canaries = canaries
    with canaries.singing():
        yield tenant
    spaces = [neighbour, tenant.namespace, play.namespace]

    def look() -> list[str]:
        serves = [] if _serves(api, neighbour) else ["the canaries' service is not Ready any more"]
        return [*untrue(api, spaces), *serves]

    play.untrue += lasting_untruths(look, TRUE_WITHIN_S)
    for actor in play.actors:
        if actor.process.process.poll() is None:
            failed = actor.process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0)
            play.untrue += [f"{failed:g} cycles failed"] if failed else []


def _serves(api: PlainApi, namespace: str) -> bool:
    status = api.send("GET", f"{OURS}/namespaces/{namespace}/modelservices/chat").body.get("status", {})
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
