"""Scaled to zero and back: a service whose status must say what is so."""

from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import TRUE_WITHIN_S, beside_canaries
from tests.controlplane.faults.truth import OURS, untrue
from tests.controlplane.faults.workload import service
from tests.until import comes_true


def scaled_to_zero(play: Play, rounds: int) -> None:
    """A service is scaled to nothing and back, and its Deployments are deleted; its status says what is so."""
    with beside_canaries(play) as tenant:
        path = f"{OURS}/namespaces/{tenant.namespace}/modelservices"
        api = play.api()
        assert (answer := tenant.create(service(tenant.namespace), path)).is_ok, answer.message
        for _ in range(rounds):
            for rate, what in ((30.0, "services scaled up"), (0.0, "services scaled to zero")):
                demand = {"spec": {"demand": {"requestsPerSecond": rate}}}
                assert (answer := tenant.patch(f"{path}/chat", demand)).is_ok, answer.message
                play.injected[what] += 1
                is_up = rate > 0

                def follows(is_up: bool = is_up) -> bool:
                    status = tenant.api.send("GET", f"{path}/chat").body.get("status", {})
                    return not untrue(api, [tenant.namespace]) and (status.get("wantedInstances", 0) > 0) == is_up

                if not comes_true(follows, TRUE_WITHIN_S):
                    play.untrue += [*untrue(api, [tenant.namespace]), f"the service does not follow {rate} requests/s"]
            apps = f"/apis/apps/v1/namespaces/{tenant.namespace}/deployments"
            for each in tenant.api.send("GET", apps).body["items"]:
                tenant.api.send("DELETE", f"{apps}/{each['metadata']['name']}")
                play.injected["Deployments deleted"] += 1
