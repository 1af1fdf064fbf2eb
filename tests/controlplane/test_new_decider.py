"""The toy decider on a real API server: from an object of its kind to a condition in the object's status."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from controller.process.main import operate
from controller.settings import OperatorSettings
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.conftest import StartServer
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import until
from tests.generated.crd_files import files
from tests.toy_decider import REGISTRIES
from tests.toy_decider.kind import KIND

pytestmark = pytest.mark.controlplane

SETTINGS: dict[str, Any] = {
    "host": "127.0.0.1",
    "probe_port": 0,
    "metrics_port": 0,
    "lease": {"namespace": "default"},
    "fenced": False,
}


@contextmanager
def toy_operator(kubeconfig: str) -> Iterator[None]:
    """An operator of the product's registries and the toy's, in a thread of the test."""
    stop = Event()
    settings = OperatorSettings.model_validate({**SETTINGS, "kubeconfig": kubeconfig})
    thread = Thread(target=operate, args=(settings, stop), kwargs={"registries": REGISTRIES}, name="toy operator")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def test_a_new_deciders_finding_stands_in_its_objects_status(start_server: StartServer, programs: Programs) -> None:
    server = start_server(ControlPlaneSettings(nodes=3))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    for definition in files(REGISTRIES.kinds).values():
        kubectl("create", "-f", "-", stdin=yaml.safe_load(definition))
    kubectl.wait("condition=Established", f"crd/{KIND.definition}")
    reserve = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "GPUReserve", "metadata": {"name": "spare"}}
    kubectl("create", "-f", "-", stdin={**reserve, "spec": {"gpus": 1_000_000}})

    def found() -> tuple[str, str] | None:
        conditions = kubectl.get("gpureserve", "spare").get("status", {}).get("conditions", [])
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == "Found"), None)

    with toy_operator(str(server.kubeconfig)):
        until(lambda: found() == ("True", "ReserveShort"), "the reserve is short, and its status says so")
        kubectl("patch", "gpureserve", "spare", "--type=merge", "-p", '{"spec": {"gpus": 1}}')
        until(lambda: found() == ("False", "NothingFound"), "the reserve is met, and its status says so")
