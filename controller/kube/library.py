"""Imports of the official Kubernetes client, limited to the parts that are used here.

Importing any part of the package loads both of its clients, blocking and asynchronous, with watches, informers and
authorisers. That costs every `tonnage get` 0.15 s and 9 MB (37.0.2) for unused code. So its two packages are registered
without running their `__init__`, and the parts below load what they need. Later imports of other parts work as usual.
"""

import sys
from importlib.util import find_spec, module_from_spec

__all__ = [
    "ApiClient",
    "ConfigException",
    "Configuration",
    "InClusterConfigLoader",
    "RESTClientObject",
    "list_kube_config_contexts",
    "load_kube_config",
]


def _without_running(name: str) -> None:
    """Register a package as an empty module, so that its modules can be imported one by one; no-op if it is loaded."""
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None:
        return  # the imports below raise ImportError
    sys.modules[name] = package = module_from_spec(spec)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


for _package in ("kubernetes", "kubernetes.aio"):
    _without_running(_package)

from kubernetes.aio.client import ApiClient, Configuration  # noqa: E402 - the lines above keep it quick
from kubernetes.aio.client.rest import RESTClientObject  # noqa: E402
from kubernetes.aio.config import ConfigException, list_kube_config_contexts, load_kube_config  # noqa: E402
from kubernetes.aio.config.incluster_config import InClusterConfigLoader  # noqa: E402
