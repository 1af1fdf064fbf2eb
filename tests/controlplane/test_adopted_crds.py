"""Kinds that were applied by hand, as in a first try, and then a release of the chart for good."""

import re
from typing import Any

import pytest

from controller.api.kinds import OWN_KINDS
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT
from tests.controlplane.servers import StartServer
from tests.deploy.helm import CHART, NAMESPACE, HelmRefusedError, install
from tests.deploy.helm_cli import helm, helm_cli

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
    admin("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    for kind in OWN_KINDS:
        admin.wait("condition=Established", f"crd/{kind.definition}")
    admin("apply", "--server-side", "-f", str(ROOT / "examples" / "gpu-types.yaml"))
    before = {each["metadata"]["uid"] for each in admin.get("gputypes")["items"]}

    with pytest.raises(HelmRefusedError, match="invalid ownership metadata"):
        install(admin.kubeconfig)

    assert {each["metadata"]["uid"] for each in admin.get("gputypes")["items"]} == before


def test_they_are_taken_over_by_the_command_that_the_docs_name(admin: Kubectl) -> None:
    program, objects = helm_cli(), ("gputypes", "crd")
    before = {each["metadata"]["uid"] for kind in objects for each in admin.get(kind)["items"]}
    command = ("install", "tonnage", str(CHART), "--namespace", NAMESPACE)
    docs = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    options = re.search(r"are taken over with `(--[^`]+)`", docs)

    refused = helm(program, admin.kubeconfig, *command)
    assert refused.returncode != 0
    assert "invalid ownership metadata" in refused.stderr

    assert options is not None
    taken = helm(program, admin.kubeconfig, *command, *options[1].split())
    assert taken.returncode == 0, taken.stderr

    assert {each["metadata"]["uid"] for kind in objects for each in admin.get(kind)["items"]} == before
    owner = {each["metadata"].get("annotations", {}).get("meta.helm.sh/release-name") for each in own_kinds(admin)}
    assert owner == {"tonnage"}
    again = helm(program, admin.kubeconfig, "upgrade", *command[1:])
    assert again.returncode == 0, again.stderr
    helm(program, admin.kubeconfig, "uninstall", "tonnage", "--namespace", NAMESPACE)
    assert len(own_kinds(admin)) == len(OWN_KINDS), "kinds stay"


def own_kinds(admin: Kubectl) -> list[dict[str, Any]]:
    return [each for each in admin.get("crd")["items"] if each["spec"]["group"] == "tonnage.dev"]


def test_a_simulated_kubelet_runs_a_pod_of_a_megabyte_and_those_after_it(admin: Kubectl) -> None:
    """aiohttp reads lines of a watch up to 512 KiB."""
    default = admin.within("default")
    big, small = pod("big"), pod("small")
    big["spec"]["containers"][0]["env"] = [{"name": f"E{n}", "value": "x" * 100_000} for n in range(9)]
    for each in (big, small):
        default("create", "-f", "-", stdin=each)

    for name in ("big", "small"):
        default.wait("condition=Ready", f"pod/{name}")
