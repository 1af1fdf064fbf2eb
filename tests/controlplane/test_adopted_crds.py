"""Kinds that were applied by hand, as in a first try, and then a release of the chart for good."""

import pytest

from controller.api.kinds import OWN_KINDS
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT
from tests.controlplane.servers import StartServer
from tests.deploy.helm import NAMESPACE, HelmRefusedError, install

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def admin(start_server: StartServer, programs: Programs) -> Kubectl:
    server = start_server(ControlPlaneSettings(nodes=1))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig, NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    return kubectl


def test_kinds_that_were_applied_by_hand_are_left_as_they_are_by_a_release_that_does_not_take_them_over(
    admin: Kubectl,
) -> None:
    """What takes them over (`--take-ownership`) is an option of Helm's command, which the library lacks."""
    admin("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    for kind in OWN_KINDS:
        admin.wait("condition=Established", f"crd/{kind.definition}")
    admin("apply", "--server-side", "-f", str(ROOT / "examples" / "gpu-types.yaml"))
    before = {each["metadata"]["uid"] for each in admin.get("gputypes")["items"]}

    with pytest.raises(HelmRefusedError, match="invalid ownership metadata"):
        install(admin.kubeconfig)

    assert {each["metadata"]["uid"] for each in admin.get("gputypes")["items"]} == before


def test_a_simulated_kubelet_runs_a_pod_of_a_megabyte_and_those_after_it(admin: Kubectl) -> None:
    """aiohttp reads lines of a watch up to 512 KiB."""
    default = admin.within("default")
    big, small = pod("big"), pod("small")
    big["spec"]["containers"][0]["env"] = [{"name": f"E{n}", "value": "x" * 100_000} for n in range(9)]
    for each in (big, small):
        default("create", "-f", "-", stdin=each)

    for name in ("big", "small"):
        default.wait("condition=Ready", f"pod/{name}")
