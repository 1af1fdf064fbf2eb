"""The few parts of the official Kubernetes client that are used here, loaded without the rest of it.

The package loads both of its clients, blocking and asynchronous, with their watches, informers and authorisers as soon
as any part of it is imported: 0.15 s and 9 MB (37.0.2) for every `tonnage get`, of which nothing is used. So its two
packages are made known without being run, and the parts below load what they need themselves; what else anybody imports
of it later loads as it always does.
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
    """Make a package known, empty, so that its modules can be imported one by one; nothing where it was loaded."""
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None:
        return  # the imports below say so in Python's own words
    sys.modules[name] = package = module_from_spec(spec)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


for _package in ("kubernetes", "kubernetes.aio"):
    _without_running(_package)

from kubernetes.aio.client import ApiClient, Configuration  # noqa: E402 - the lines above make it quick
from kubernetes.aio.client.rest import RESTClientObject  # noqa: E402
from kubernetes.aio.config import ConfigException, list_kube_config_contexts, load_kube_config  # noqa: E402
from kubernetes.aio.config.incluster_config import InClusterConfigLoader  # noqa: E402
