"""Priorities of pods in files, as the admission of Kubernetes writes them into pods: from PriorityClasses."""

from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import msgspec

from cluster.errors import Mistake
from controller.api.structs import Pod
from controller.objects.read import PlainObject, Read


def with_priorities(
    read: Iterable[Read[Any]], written: Iterable[PlainObject], mistakes: list[Mistake]
) -> list[Read[Any]]:
    """The objects, where pods without a priority have that of their class, or of the class that is the default.

    written: PriorityClasses. A class that cannot be read is a mistake. Of several defaults the lowest counts.
    Source: Kubernetes documentation, "Pod Priority and Preemption"; its admission plugin Priority.
    """
    classes: dict[str, tuple[int, str]] = {}
    """(value, preemption policy) by name."""
    defaults: list[tuple[int, str]] = []
    for each in written:
        value = each.content.get("value", 0)
        if isinstance(value, bool) or not isinstance(value, int):
            place = each.document.place(f"PriorityClass/{each.name}", ("value",))
            mistakes.append(Mistake(place, f"is {value!r}", "write a whole number"))
            continue
        made = classes[each.name] = value, str(each.content.get("preemptionPolicy") or "PreemptLowerPriority")
        defaults += [made] if each.content.get("globalDefault") is True else []
    if not classes:
        return list(read)
    default = min(defaults, key=itemgetter(0), default=None)

    def resolved(one: Read[Any]) -> Read[Any]:
        if not isinstance(one.object, Pod) or one.object.spec.priority is not None:
            return one
        spec = one.object.spec
        found = classes.get(spec.priority_class_name) if spec.priority_class_name else default
        if found is None:
            return one
        value, policy = found
        spec = msgspec.structs.replace(spec, priority=value, preemption_policy=spec.preemption_policy or policy)
        return replace(one, object=msgspec.structs.replace(one.object, spec=spec))

    return [resolved(each) for each in read]
