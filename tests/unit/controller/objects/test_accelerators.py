"""Accelerators that objects of any kind ask for, whatever the vendor calls them and wherever their containers stand."""

import pytest

from controller.objects.accelerators import accelerators_in


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "amd.com/gpu",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "google.com/tpu",
        "rdma/hca",
        "volcano.sh/vgpu-number",
        "example.com/fpga",
        "gpu",
        "gpu-fraction",
    ],
)
def test_devices_of_nodes_count_wherever_their_containers_stand(resource: str) -> None:
    assert accelerators_in({"spec": {"workers": [{"resources": {"limits": {resource: 1}}}]}}) == {resource: "1"}


def test_a_share_in_an_annotation_and_a_claim_count() -> None:
    template = {
        "metadata": {"annotations": {"tonnage.dev/gpu-milli": "500"}},
        "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "gpus"}]},
    }

    assert accelerators_in({"spec": {"template": template}}) == {
        "resourceClaimName": "gpus",
        "tonnage.dev/gpu-milli": "500",
    }


@pytest.mark.parametrize(
    "content",
    [
        {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "H100"}}},
        {
            "spec": {
                "resources": {"limits": {"cpu": 4, "hugepages-2Mi": "1Gi", "attachable-volumes.kubernetes.io/x": 1}}
            }
        },
        {"spec": {"resources": {"limits": {"nvidia.com/gpu": 0}}}},
        {"spec": {"limits": {"nvidia.com/gpu": 8}}},  # of Karpenter's NodePool: how many it may start
        {"spec": {"hard": {"requests.nvidia.com/gpu": 8}}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"deviceClassName": "gpu.example.com"}},
        {"status": {"resources": {"limits": {"nvidia.com/gpu": 8}}}},
    ],
)
def test_what_limits_selects_or_reports_devices_asks_for_none(content: dict[str, object]) -> None:
    assert accelerators_in(content) == {}
