"""How much of their devices pods use, from answers of Prometheus: exporters of several vendors, one figure. Pure."""

from collections.abc import Iterable, Mapping

PERCENT = (
    "DCGM_FI_DEV_GPU_UTIL",
    "gpu_gfx_activity",
    "habanalabs_utilization",
    "npu_chip_info_utilization",
    "container_accelerator_duty_cycle",
    "kubernetes_io:container_accelerator_duty_cycle",
)
"""Series of NVIDIA's, AMD's, Intel's (Gaudi), Huawei's and Google's exporters that count to 100."""
RATIO = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "neuroncore_utilization_ratio")
"""Series that count to 1: NVIDIA's for slices of a device, and Amazon's."""
WINDOW = "1d"
QUERY = (
    "max by (__name__, namespace, pod, exported_namespace, exported_pod, namespace_name, pod_name) (avg_over_time("
    f'{{__name__=~"{"|".join((*PERCENT, *RATIO))}"}}[{WINDOW}]))'
)
"""Mean of a day; of a pod's devices, the busiest."""


def used_share_by_pod(answer: Iterable[tuple[Mapping[str, str], float]]) -> dict[str, float]:
    """Mean utilisation by pod, `namespace/name`, 0..1; of several devices, and several series of one, the greatest.

    answer: labels and value of each series.

    An exporter's own pod is in `pod` where Prometheus keeps what it scraped in `exported_pod`. Devices without a pod
    are in no figure.
    """
    found: dict[str, float] = {}
    for labels, value in answer:
        name = labels.get("__name__", PERCENT[0])
        pod = labels.get("exported_pod") or labels.get("pod") or labels.get("pod_name")
        namespace = labels.get("exported_namespace") or labels.get("namespace") or labels.get("namespace_name")
        if pod and namespace:
            share = value / (1.0 if name in RATIO else 100.0)
            found[f"{namespace}/{pod}"] = max(share, found.get(f"{namespace}/{pod}", 0.0))
    return found
