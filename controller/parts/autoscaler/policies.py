"""ScalingPolicies as objects, read from their cache once per version."""

from collections.abc import Mapping
from threading import Lock

from controller.api.scaling_policy import KIND, ScalingPolicy
from controller.api.structs import OwnObject
from controller.kube.cache import Cache
from controller.objects.own_objects import own_from
from controller.objects.read import Read
from controller.snapshot.scalers import within_bounds


class PolicyBook:
    """Valid policies that are evaluated, by `namespace/name`; it remembers what it read. Thread-safe."""

    def __init__(self, cache: Cache[OwnObject]) -> None:
        self._cache = cache
        self._lock = Lock()
        self._read: dict[str, tuple[OwnObject, ScalingPolicy | None]] = {}

    def all(self) -> Mapping[str, ScalingPolicy]:
        with self._lock:
            return self._current(self._cache.all())

    def _current(self, objects: Mapping[str, OwnObject]) -> Mapping[str, ScalingPolicy]:
        for name, obj in objects.items():
            known = self._read.get(name)
            if known is None or known[0] is not obj:
                read = own_from(name, KIND, obj)
                self._read[name] = (obj, read.object if isinstance(read, Read) else None)
        self._read = {name: each for name, each in self._read.items() if name in objects}
        valid = {name: policy for name, (_, policy) in sorted(self._read.items()) if policy is not None}
        within = within_bounds(valid)
        return {name: policy for name, policy in valid.items() if name in within}
