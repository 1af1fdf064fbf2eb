"""README's commands, from a model to a running mix, as they stand there, on a real API server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.cli.verbs.test_profile import LLAMA
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU
from tests.controlplane.operators import ROOT, operator
from tests.controlplane.servers import StartServer


def test_three_commands_take_a_model_to_a_running_mix(
    start_server: StartServer, programs: Programs, tmp_path: Path
) -> None:
    text = (ROOT / "README.md").read_text()
    commands = re.search(r"From a model to a running mix:\n\n```\n(.*?)```", text, re.DOTALL)
    service = re.search(r"```yaml\n(apiVersion.*?kind: ModelService.*?)```", text, re.DOTALL)
    assert commands is not None
    assert service is not None
    assert len(commands[1].splitlines()) == 3
    products = {"n0": "NVIDIA-L4", "n1": "NVIDIA-L4", "n2": "NVIDIA-H100-80GB-HBM3"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
            "status": {"allocatable": {"cpu": "96", "memory": "1Ti", GPU: "8"}},
        }
        for name, product in products.items()
    ]
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    (tmp_path / "service.yaml").write_text(service[1])
    (tmp_path / "small-8b").mkdir()
    (tmp_path / "small-8b" / "config.json").write_text(json.dumps(LLAMA))
    server = start_server(ControlPlaneSettings(manifests=str(tmp_path / "nodes.json")))
    admin = Kubectl(programs["kubectl"], server.kubeconfig)
    admin("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices"):
        admin.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    admin("create", "namespace", "tonnage-system")
    shell = f'tonnage() {{ "{sys.executable}" -m cli.main "$@"; }}; kubectl() {{ "{programs["kubectl"]}" "$@"; }}\n'
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}]):
        done = subprocess.run(  # noqa: S603 - README's own commands
            ["/bin/bash", "-ec", shell + commands[1]],
            cwd=tmp_path,
            env={**os.environ, "KUBECONFIG": str(server.kubeconfig), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        admin.wait("condition=Ready", "modelservice/chat")
        status = admin.get("modelservice", "chat")["status"]
        assert status["running"] == status["mix"] == {"l4": 3}
        assert status["costPerHour"] == 2.415
