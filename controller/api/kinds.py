"""Which kinds there are: the model of each, and what is checked between its fields."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from controller.api import model_profile, model_service, pod
from controller.api.fields import Loose, Strict
from controller.api.flaw import Flaw
from controller.api.gang import Gang
from controller.api.gpu_type import GPUType
from controller.api.metadata import API_VERSION
from controller.api.model_profile import ModelProfile
from controller.api.model_service import ModelService
from controller.api.node import Node
from controller.api.pod import Pod


def _none(_: Any) -> Iterable[Flaw]:
    return ()


@dataclass(frozen=True, slots=True)
class Kind:
    api_version: str
    name: str
    model: type[Strict | Loose]
    is_namespaced: bool
    flaws: Callable[[Any], Iterable[Flaw]] = _none
    """Called with an object whose fields are right one by one."""


NODE_KIND = Kind("v1", "Node", Node, is_namespaced=False)
POD_KIND = Kind("v1", "Pod", Pod, is_namespaced=True, flaws=pod.flaws)
KINDS = (
    Kind(API_VERSION, "GPUType", GPUType, is_namespaced=False),
    Kind(API_VERSION, "ModelProfile", ModelProfile, is_namespaced=False, flaws=model_profile.flaws),
    Kind(API_VERSION, "ModelService", ModelService, is_namespaced=True, flaws=model_service.flaws),
    Kind(API_VERSION, "Gang", Gang, is_namespaced=True),
    NODE_KIND,
    POD_KIND,
)
OWN_KINDS = tuple(kind for kind in KINDS if kind.api_version == API_VERSION)

_BY_NAME = {(kind.api_version, kind.name): kind for kind in KINDS}


def kind_of(api_version: str, name: str) -> Kind | None:
    return _BY_NAME.get((api_version, name))
