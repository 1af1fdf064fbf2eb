"""Kinds that were applied by hand, as in a first try, and then a release of the chart for good."""

import pytest

from controller.api.kinds import OWN_KINDS
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT
from tests.controlplane.servers import StartServer
from tests.deploy.helm import NAMESPACE, HelmRefusedError, install, upgrade

pytestmark = pytest.mark.controlplane

OWNED = (
    "meta.helm.sh/release-name=tonnage",
    f"meta.helm.sh/release-namespace={NAMESPACE}",
)


@pytest.fixture(scope="module")
def admin(start_server: StartServer, programs: Programs) -> Kubectl:
    server = start_server(ControlPlaneSettings(nodes=1))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig, NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    return kubectl


def test_kinds_that_were_applied_by_hand_are_adopted_with_their_objects(admin: Kubectl) -> None:
    """As `helm install --take-ownership` does, which the library lacks: by Helm's own marks on them."""
    admin("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    names = [f"crd/{kind.definition}" for kind in OWN_KINDS]
    for name in names:
        admin.wait("condition=Established", name)
    admin("apply", "--server-side", "-f", str(ROOT / "examples" / "gpu-types.yaml"))
    before = {each["metadata"]["uid"] for each in admin.get("gputypes")["items"]}

    with pytest.raises(HelmRefusedError, match="invalid ownership metadata"):
        install(admin.kubeconfig)
    admin("label", *names, "app.kubernetes.io/managed-by=Helm")
    admin("annotate", *names, *OWNED)
    install(admin.kubeconfig)
    upgrade(admin.kubeconfig, {"replicas": 1})

    assert {each["metadata"]["uid"] for each in admin.get("gputypes")["items"]} == before
    assert admin.get("deployment/tonnage")["spec"]["replicas"] == 1


def test_a_simulated_kubelet_runs_a_pod_of_a_megabyte_and_those_after_it(admin: Kubectl) -> None:
    """aiohttp reads lines of a watch up to 512 KiB."""
    default = admin.within("default")
    big, small = pod("big"), pod("small")
    big["spec"]["containers"][0]["env"] = [{"name": f"E{n}", "value": "x" * 100_000} for n in range(9)]
    for each in (big, small):
        default("create", "-f", "-", stdin=each)

    for name in ("big", "small"):
        default.wait("condition=Ready", f"pod/{name}")
