"""The push endpoint and the external metrics API with a real API server that reviews, aggregates and scales."""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.api.scaling_policy import ScalingPolicy
from controller.kube.connection import LoopThread, connect
from controller.kube.credentials import ApiAccess
from controller.loops.autoscaler.endpoints import open_endpoints
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.policies import PolicyReader
from controller.loops.loop import LoopClocks
from controller.metrics.registry import Meter
from controller.settings import AutoscalerSettings, ExternalMetricsSettings, PushSettings, ServingTlsSettings
from simulator.controlplane.server import ControlPlane
from tests.builders.certificates import Authority
from tests.builders.leading import Leading
from tests.builders.loop_context import loop_context
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import until

pytestmark = pytest.mark.controlplane


@dataclass
class Stage:
    """Both endpoints, with policies of the test's own; they ask the API server as its administrator."""

    kubectl: Kubectl
    namespace: str
    ports: dict[str, int]
    authority: Authority
    measured: Measured
    policies: dict[str, ScalingPolicy] = field(default_factory=dict)

    def put(self, name: str, *, recommended: int | None = None) -> None:
        body = {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "ScalingPolicy",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "maxReplicas": 20,
                "capacity": {"perReplica": 5},
                "demand": {"sources": [{"role": "requests", "push": {}}]},
            },
            "status": {} if recommended is None else {"recommendedReplicas": recommended},
        }
        self.policies[f"{self.namespace}/{name}"] = ScalingPolicy.model_validate(body)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def token(self, account: str, *options: str) -> str:
        return self.kubectl("create", "token", account, *options).strip()

    def push(self, token: str, policy: str, **values: float) -> int:
        body = json.dumps({"policy": policy, **values}).encode()
        url = f"http://127.0.0.1:{self.ports['push']}/v1/demand"
        request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the test's own server
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


class GivenPolicies(PolicyReader):
    """Policies of the test's own in place of those in a cache."""

    def __init__(self, policies: Mapping[str, ScalingPolicy]) -> None:
        self._policies = policies

    def all(self) -> Mapping[str, ScalingPolicy]:
        return self._policies


@pytest.fixture
def stage(control_plane: ControlPlane, kubectl: Kubectl, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    authority = Authority(tmp_path)
    serving = authority.vouches_for(f"tonnage-external-metrics.{namespace}.svc")
    settings = AutoscalerSettings(
        push=PushSettings(enabled=True, port=0),
        external_metrics=ExternalMetricsSettings(
            enabled=True,
            port=0,
            tls=ServingTlsSettings(certificate=str(serving.certificate), key=str(serving.key)),
        ),
    )
    with ExitStack() as stack:
        loop = LoopThread("kubernetes")
        stack.callback(loop.close)
        connection = loop.run(connect(ApiAccess(kubeconfig=str(control_plane.kubeconfig)), time.monotonic))
        stack.callback(lambda: loop.run_within(connection.close(), 1.0))
        stage = Stage(kubectl, namespace, {}, authority, Measured())
        context = loop_context(
            thread=loop,
            connection=connection,
            leadership=Leading(),
            meter=Meter(),
            clocks=LoopClocks(time.monotonic, time.time),
            stack=stack,
        )
        stage.ports |= open_endpoints(settings, "127.0.0.1", context, GivenPolicies(stage.policies), stage.measured)
        yield stage


def test_a_service_account_with_the_permission_pushes_demand_of_its_policy_alone(stage: Stage) -> None:
    namespace = stage.namespace
    for name in ("chat", "search"):
        stage.put(name)
    for account in ("gateway", "stranger"):
        stage.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    rule = {"apiGroups": ["tonnage.dev"], "resources": ["scalingpolicies/demand"], "verbs": ["update"]}
    group = "rbac.authorization.k8s.io"
    stage.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": {"name": "push"},
            "rules": [{**rule, "resourceNames": ["chat"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "push"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "push"},
            "subjects": [{"kind": "ServiceAccount", "name": "gateway", "namespace": namespace}],
        },
    )
    token = stage.token("gateway", "--audience", "tonnage")

    until(lambda: stage.push(token, f"{namespace}/chat", requests=12.5) == 202, "the permission is in force")
    assert stage.measured.of(f"{namespace}/chat").newest["requests"].value == 12.5
    assert stage.push(token, f"{namespace}/search", requests=1) == 403
    assert stage.push(token, "default/chat", requests=1) == 403
    assert stage.push(stage.token("stranger", "--audience", "tonnage"), f"{namespace}/chat", requests=1) == 403
    # A token for the API server is of no use here, nor one that the server never issued.
    assert stage.push(stage.token("gateway"), f"{namespace}/chat", requests=1) == 403
    assert stage.push("made-up", f"{namespace}/chat", requests=1) == 403


def _registered(stage: Stage) -> list[dict[str, Any]]:
    """The API behind a Service of this machine, since a pretended cluster routes no Service addresses."""
    name = "tonnage-external-metrics"
    bundle = base64.b64encode(stage.authority.certificate.read_bytes()).decode()
    port = stage.ports["external_metrics"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": bundle,
                "service": {"name": name, "namespace": stage.namespace, "port": port},
            },
        },
    ]


def test_an_hpa_scales_by_the_recommendation(stage: Stage) -> None:
    stage.put("chat", recommended=7)
    stage.put("search", recommended=2)
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{stage.namespace}/tonnage_desired_replicas"

    stage.apply(*_registered(stage))
    try:
        stage.kubectl.wait("condition=Available", "apiservice/v1beta1.external.metrics.k8s.io")
        found = json.loads(stage.kubectl("get", "--raw", f"{path}?labelSelector=policy%3Dchat"))
        assert [(item["metricLabels"]["policy"], item["value"]) for item in found["items"]] == [("chat", "7")]
        pod = {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
        stage.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "chat"},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "chat"}}, "template": pod},
            },
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "chat"},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
                    "minReplicas": 1,
                    "maxReplicas": 20,
                    "metrics": [
                        {
                            "type": "External",
                            "external": {
                                "metric": {
                                    "name": "tonnage_desired_replicas",
                                    "selector": {"matchLabels": {"policy": "chat"}},
                                },
                                "target": {"type": "AverageValue", "averageValue": "1"},
                            },
                        }
                    ],
                },
            },
        )

        def replicas() -> int:
            return int(stage.kubectl.get("deployment", "chat")["spec"]["replicas"])

        # An HPA goes up by at most 4 pods or 100 % in 15 s: 1, 5, 7.
        until(lambda: replicas() == 7, "the HPA follows the recommendation")
    finally:
        stage.kubectl("delete", "apiservice", "v1beta1.external.metrics.k8s.io")
        stage.kubectl("delete", "hpa,deployment", "chat", "--ignore-not-found", "--wait=false")
