"""Catalogue: node shapes as clouds, operators and vendors document them, with the price of the whole node, or none."""

import json
from datetime import date
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import tonnage
from controller.objects.catalogue import needed_types, read_catalogue

GPU, PRODUCT, INSTANCE = "nvidia.com/gpu", "nvidia.com/gpu.product", "node.kubernetes.io/instance-type"
GKE, TPU = "cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY, PARTITION = "cloud.google.com/gke-tpu-topology", "cloud.google.com/gke-gpu-partition-size"
CLIENTS, REPLICAS = "cloud.google.com/gke-max-shared-clients-per-gpu", "nvidia.com/gpu.replicas"
NEURON, GAUDI, AMD = "aws.amazon.com/neuron", "habana.ai/gaudi", "amd.com/gpu"
AWS, GCP, AZURE, OCI = (
    "aws:///us-east-1a/i-1",
    "gce://p/us-central1-a/n",
    "azure:///subscriptions/s",
    "ocid1.instance.oc1",
)
V100_BY_HAMI = (
    "GPU-1,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:GPU-2,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:"
)

# Dollars of the whole node and hour; None: honestly without a price.
SHAPES: dict[str, tuple[dict[str, str], dict[str, str], str, float | None]] = {
    "gke-a100": ({GKE: "nvidia-tesla-a100", INSTANCE: "a2-highgpu-8g"}, {GPU: "8"}, GCP, 8 * 3.67),
    "gke-h100": ({GKE: "nvidia-h100-80gb"}, {GPU: "8"}, GCP, 8 * 11.06),
    "gke-h200": ({GKE: "nvidia-h200-141gb"}, {GPU: "8"}, GCP, 8 * 10.60),
    "gke-l4": ({GKE: "nvidia-l4"}, {GPU: "2"}, GCP, 2 * 0.71),
    "gke-mig": ({GKE: "nvidia-h100-80gb", PARTITION: "1g.10gb"}, {GPU: "56"}, GCP, 8 * 11.06),
    "gke-time-sharing": ({GKE: "nvidia-tesla-t4", CLIENTS: "4"}, {GPU: "4"}, GCP, 0.54),
    "gke-mps-of-96": ({GKE: "nvidia-l4", CLIENTS: "48"}, {GPU: "96"}, GCP, 2 * 0.71),
    "gke-v5e": ({TPU: "tpu-v5-lite-podslice", TOPOLOGY: "4x4"}, {"google.com/tpu": "4"}, GCP, 4 * 1.20),
    "gke-v6e": ({TPU: "tpu-v6e-slice", TOPOLOGY: "2x4"}, {"google.com/tpu": "8"}, GCP, 8 * 2.70),
    "eks-h100": ({INSTANCE: "p5.48xlarge"}, {GPU: "8"}, AWS, 8 * 6.88),
    "eks-a100-80": ({INSTANCE: "p4de.24xlarge"}, {GPU: "8"}, AWS, 8 * 3.43),
    "eks-l40s": ({INSTANCE: "g6e.12xlarge"}, {GPU: "4"}, AWS, 4 * 1.861),
    "eks-b200": ({INSTANCE: "p6-b200.48xlarge"}, {GPU: "8"}, AWS, 8 * 14.24),
    "eks-trainium": ({INSTANCE: "trn1.32xlarge"}, {NEURON: "16", f"{NEURON}core": "32"}, AWS, 16 * 1.344),
    "eks-trainium2": ({INSTANCE: "trn2.48xlarge"}, {NEURON: "16", f"{NEURON}core": "64"}, AWS, None),
    "eks-inferentia2": ({INSTANCE: "inf2.48xlarge"}, {NEURON: "12"}, AWS, 12 * 0.758),
    "eks-gaudi": ({INSTANCE: "dl1.24xlarge"}, {GAUDI: "8"}, AWS, 8 * 1.64),
    "karpenter-l40s": ({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, {GPU: "1"}, AWS, 1.861),
    "karpenter-a10g": ({INSTANCE: "g5.12xlarge"}, {GPU: "4"}, AWS, 4 * 1.006),
    "aks-a100": ({INSTANCE: "Standard_NC48ads_A100_v4"}, {GPU: "2"}, AZURE, 2 * 3.673),
    "aks-h100": ({INSTANCE: "Standard_ND96isr_H100_v5"}, {GPU: "8"}, AZURE, 8 * 12.29),
    "aks-h100-nvl": ({INSTANCE: "Standard_NC80adis_H100_v5"}, {GPU: "2"}, AZURE, 2 * 6.98),
    "aks-mi300x": ({INSTANCE: "Standard_ND96isr_MI300X_v5"}, {AMD: "8"}, AZURE, 8 * 6.00),
    "aks-sixth-of-a10": ({INSTANCE: "Standard_NV6ads_A10_v5", PRODUCT: "NVIDIA-A10-4Q"}, {GPU: "1"}, AZURE, None),
    "oci-h100": ({INSTANCE: "BM.GPU.H100.8"}, {GPU: "8"}, OCI, 80.0),
    "nebius-h200": ({INSTANCE: "gpu-h200-sxm", PRODUCT: "NVIDIA-H200"}, {GPU: "8"}, "nebius://x", 28.0),
    "coreweave-gb200": ({"gpu.nvidia.com/class": "GB200_4X", "node.coreweave.cloud/v": "1"}, {GPU: "4"}, "", 42.0),
    "own-h100-nvl": ({PRODUCT: "NVIDIA-H100-NVL"}, {GPU: "4"}, "", 4 * 6.98),
    "replicas-of-80": ({PRODUCT: "NVIDIA-A100-SXM4-80GB-SHARED", REPLICAS: "10"}, {GPU: "80"}, "", 8 * 3.43),
    "replicas-by-count": (
        {PRODUCT: "NVIDIA-L4", "nvidia.com/gpu.count": "4", "kubernetes.io/hostname": "n"}, {GPU: "40"}, "", 4 * 0.805
    ),
    "replicas-renamed": ({PRODUCT: "NVIDIA-A100-SXM4-80GB", REPLICAS: "4"}, {f"{GPU}.shared": "32"}, "", 8 * 3.43),
    "mig-single": ({PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-2g.20gb"}, {GPU: "24"}, "", 8 * 3.43),
    "mig-mixed": (
        {PRODUCT: "NVIDIA-A100-SXM4-80GB"},
        {GPU: "0", "nvidia.com/mig-1g.10gb": "16", "nvidia.com/mig-2g.20gb": "8", "nvidia.com/mig-3g.40gb": "8"},
        "",
        8 * 3.43,
    ),
    "mig-beside-whole": ({PRODUCT: "NVIDIA-A100-SXM4-80GB"}, {GPU: "4", "nvidia.com/mig-1g.10gb": "28"}, "", 8 * 3.43),
    "hami": ({"kubernetes.io/hostname": "node"}, {GPU: "20"}, "", 2 * 3.90),
    "mi300x-cpx": ({f"{AMD}.product-name": "AMD_Instinct_MI300X_OAM"}, {"amd.com/cpx_nps4": "32"}, "", 4 * 6.00),
    "gaudi3": ({"accelerator": "gaudi3"}, {GAUDI: "8"}, "", None),
    "ascend": ({"node.kubernetes.io/npu.chip.name": "910B3"}, {"huawei.com/Ascend910": "8"}, "", None),
    "intel-max": ({"gpu.intel.com/product": "Max_1100"}, {"gpu.intel.com/i915": "4"}, "", None),
    "cambricon": ({}, {"cambricon.com/mlu": "8"}, "", None),
    "product-of-next-year": ({PRODUCT: "NVIDIA-Z900"}, {GPU: "8"}, "", None),
}  # fmt: skip


def node_of(shape: str) -> dict[str, Any]:
    labels, devices, origin, _ = SHAPES[shape]
    has = {"cpu": "96", "memory": "512Gi", "pods": "110", **devices}
    annotations = {"hami.io/node-nvidia-register": V100_BY_HAMI} if shape == "hami" else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node", "uid": "u", "labels": labels, "annotations": annotations},
        "spec": {"providerID": origin},
        "status": {"allocatable": has, "capacity": has},
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_a_node_has_the_price_of_its_devices_or_is_said_to_have_none(shape: str) -> None:
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node_of(shape)]})

    result = CliRunner().invoke(tonnage, ["advise", "-o", "json", "-f", "-"], input=dump)

    assert result.exit_code == 0, result.stderr
    record, price = json.loads(result.stdout), SHAPES[shape][-1]
    assert record["fleet"]["gpus"] > 0
    assert record["unpriced_nodes"] == ([] if price is not None else ["node"])
    assert record["fleet"]["cost_per_hour"] == pytest.approx(price or 0.0, rel=1e-3)
    assert ("note: node: no price of" in result.stderr) == (price is None)


def test_gputypes_of_a_cluster_recognise_the_nodes_that_they_are_made_of() -> None:
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node_of("mig-mixed"), node_of("gke-v5e")]})

    result = CliRunner().invoke(tonnage, ["gputypes", "-f", "-"], input=dump)

    assert result.exit_code == 0, result.stderr
    assert "# Price: Google Cloud on-demand and committed-use prices, us-central1; 2025-03." in result.stdout
    assert "devicesPerPod:\n  - 4\n" in result.stdout
    assert [line for line in result.stdout.splitlines() if line.startswith("  name:")] == [
        "  name: a100-80-1g.10gb",
        "  name: a100-80-2g.20gb",
        "  name: a100-80-3g.40gb",
        "  name: tpu-v5e-4x4",
    ]


def test_the_memory_of_a_slice_is_that_of_its_profile() -> None:
    """One eighth of 80 GiB, and seven such slices of a device of $11.06."""
    made = needed_types([node_of("gke-mig")], read_catalogue(None)).objects[0]["spec"]

    assert (made["memory"], made["pricePerHour"]) == ("10240Mi", {"onDemand": 1.58})


def test_a_node_that_offers_only_the_cores_of_its_devices_is_named() -> None:
    node, whole = node_of("eks-inferentia2"), node_of("eks-trainium")
    node["status"]["allocatable"] = node["status"]["capacity"] = {f"{NEURON}core": "24"}

    unpriced = needed_types([node, whole], read_catalogue(None)).unpriced

    assert unpriced == {f"{NEURON}core, of no type that the catalogue has": ("node",)}


def test_prices_are_old_after_half_a_year() -> None:
    catalogue = read_catalogue(None)

    year, month = map(int, catalogue.as_of.split("-"))
    assert not catalogue.is_old(date(year, month, 28))
    assert catalogue.is_old(date(year + 1, month, 1))
