"""Objects of kinds that Tonnage does not read: whether they ask for GPUs is told, whatever the vendor calls them."""

import pytest

from controller.objects.pod_templates import asks_for_gpus


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "tonnage.dev/gpu-milli",
        "aliyun.com/gpu-mem",
        "volcano.sh/vgpu-number",
        "gpu-fraction",
    ],
)
def test_extended_resources_of_gpus_count_wherever_they_stand(resource: str) -> None:
    assert asks_for_gpus({"spec": {"workers": [{"resources": {"limits": {resource: 1}}}]}})


@pytest.mark.parametrize("request_", [{"deviceClassName": "gpu.nvidia.com"}, {"exactly": {"deviceClassName": "gpu.x"}}])
def test_claims_of_a_class_of_gpus_count(request_: object) -> None:
    assert asks_for_gpus({"kind": "ResourceClaim", "spec": {"devices": {"requests": [request_]}}})


@pytest.mark.parametrize(
    "content",
    [
        {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "H100"}}},
        {"spec": {"limits": {"cpu": 4, "example.com/fpga": 1}}},
        {"spec": {"devices": {"requests": [{"deviceClassName": "nic.example.com"}]}}},
        {"deviceClassName": None},
    ],
)
def test_labels_and_other_devices_do_not(content: object) -> None:
    assert not asks_for_gpus(content)
