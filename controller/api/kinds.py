"""Which kinds there are: the model of each, and what is checked between its fields."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controller.api import gang, gpu_type, model_profile, model_service, pod, power_domain
from controller.api.fields import Loose, Strict
from controller.api.flaw import Flaw
from controller.api.gang import Gang
from controller.api.gpu_type import GPUType
from controller.api.labels import API_VERSION
from controller.api.model_profile import ModelProfile
from controller.api.model_service import ModelService
from controller.api.node import Node
from controller.api.pod import Pod
from controller.api.power_domain import PowerDomain
from controller.api.rule import Rule


@dataclass(frozen=True, slots=True)
class Kind:
    api_version: str
    name: str
    model: type[Strict | Loose]
    is_namespaced: bool
    rules: tuple[Rule, ...] = ()
    """What must hold between the fields, for the API server and for files."""
    checks: tuple[Callable[[Any], Iterable[Flaw]], ...] = ()
    """What only files need to be checked for. Called with an object whose fields are right one by one."""
    is_planned_from: bool = True
    """Whether planning reads it; a PowerDomain is read by the fast loop alone."""

    def flaws(self, obj: Any) -> Iterator[Flaw]:
        """What is wrong between the fields of an object whose fields are right one by one."""
        for check in (*(rule.flaws for rule in self.rules if rule.flaws), *self.checks):
            yield from check(obj)


NODE_KIND = Kind("v1", "Node", Node, is_namespaced=False)
POD_KIND = Kind("v1", "Pod", Pod, is_namespaced=True, checks=(pod.flaws,))
KINDS = (
    Kind(API_VERSION, "GPUType", GPUType, is_namespaced=False, rules=gpu_type.RULES, checks=gpu_type.SETS),
    Kind(API_VERSION, "ModelProfile", ModelProfile, is_namespaced=False, rules=model_profile.RULES),
    Kind(
        API_VERSION,
        "ModelService",
        ModelService,
        is_namespaced=True,
        rules=model_service.RULES,
        checks=model_service.SETS,
    ),
    Kind(API_VERSION, "Gang", Gang, is_namespaced=True, rules=gang.RULES),
    Kind(
        API_VERSION,
        "PowerDomain",
        PowerDomain,
        is_namespaced=False,
        rules=power_domain.RULES,
        checks=power_domain.SETS,
        is_planned_from=False,
    ),
    NODE_KIND,
    POD_KIND,
)
OWN_KINDS = tuple(kind for kind in KINDS if kind.api_version == API_VERSION)

_BY_NAME = {(kind.api_version, kind.name): kind for kind in KINDS}


def kind_of(api_version: str, name: str) -> Kind | None:
    return _BY_NAME.get((api_version, name))
