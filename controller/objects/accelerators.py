"""What an object of any kind asks for of accelerators, wherever in it there are containers or a pod template."""

import re
from collections.abc import Mapping
from typing import Any

_RESOURCES = ("limits", "requests")
_CLAIMS = ("resourceClaimName", "resourceClaimTemplateName", "deviceClassName")
"""Fields that name devices to be allocated by claims (DRA)."""
_BARE = re.compile(r"gpus?|(tonnage\.dev/)?gpu-(milli|fraction|memory)")
"""Names of GPUs without a domain, as serving frameworks write them, and of shares of one, as annotations and as
resources."""

_DEVICE = re.compile(
    r"nvidia\.com/(gpu(\.shared)?|mig-.+)|amd\.com/(gpu|[sdqc]px_nps\d)|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi|"
    r"google\.com/tpu|aws\.amazon\.com/neuron|huawei\.com/Ascend\d.*|cambricon\.com/(mlu|mlu\d+)|qualcomm\.com/qaic|"
    r"hygon\.com/dcu|metax-tech\.com/gpu|mthreads\.com/gpu|iluvatar\.ai/gpu|enflame\.com/gcu|kunlunxin\.com/xpu|"
    r"(furiosa|rebellions)\.ai/.+|tenstorrent\.com/.+"
)
"""Extended resources of which each unit is an accelerator or a part of one. Further ones are those of GPUTypes."""
VIEWS = {"aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice"}
"""Resources that are the same devices once more: who holds these holds those. Source: Amazon's device plugin."""
PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
"""Labels that vendors' discovery sets to the name of a product."""
COUNT_LABELS = ("nvidia.com/gpu.count", "gpu.intel.com/gpu.count")
"""Labels with the number of physical devices of a node, whose capacity may count shares of them."""


def is_device(resource: str) -> bool:
    """Whether each unit of an extended resource is an accelerator, or a slice or replica of one."""
    return _DEVICE.fullmatch(resource) is not None


def is_accelerator(resource: str) -> bool:
    """Whether a resource is a device of a node: any name with a domain that is not Kubernetes' own, or a GPU's."""
    domain, has_domain, _ = resource.partition("/")
    is_own = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(has_domain and not is_own) or _BARE.fullmatch(resource) is not None


def accelerators_in(content: Mapping[str, Any]) -> dict[str, str]:
    """Accelerators that containers in an object ask for: resource → amount, as it is first written, sorted.

    Resources count where they are limits or requests of something that is called resources (of a container, of a pod,
    of a worker). A share of a GPU in an annotation counts, and a claim of devices, by its name, where the object is no
    claim itself. What the object's status says, what it limits (a quota, a pool of nodes) and what it selects nodes by
    is no request.
    """
    if str(content.get("apiVersion")).startswith("resource.k8s.io/"):
        return {}
    found: dict[str, str] = {}
    stack: list[tuple[str, str, Any]] = [("", key, value) for key, value in content.items() if key != "status"]
    while stack:
        within, key, value = stack.pop()
        if isinstance(value, list):
            stack.extend((within, key, each) for each in value)
        elif isinstance(value, Mapping):
            if key in _RESOURCES and "resource" in within.lower():
                for name, amount in value.items():
                    if is_accelerator(str(name)) and str(amount) not in ("0", "", "None"):
                        found.setdefault(str(name), str(amount))
            elif key == "annotations":
                found |= {name: str(amount) for name, amount in value.items() if _BARE.fullmatch(str(name))}
            found |= {name: str(value[name]) for name in _CLAIMS if isinstance(value.get(name), str)}
            stack.extend((key, str(name), each) for name, each in value.items())
    return dict(sorted(found.items()))
