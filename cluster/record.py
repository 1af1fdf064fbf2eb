"""Records: snapshots and plans as JSON that stays readable, for support bundles and replay.

A record is one object, `{"record": 1, "snapshot": …}` or `{"record": 1, "plan": …}`, keys sorted, fields by the names
of `cluster/`, arrays as (nested) lists. The same data gives the same bytes. A field that a later version adds has a
default, so older records of the same number stay readable; any other change raises the number.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from cluster.actions import ACTIONS, Action
from cluster.arrays import Names
from cluster.errors import ConfigError, Mistake
from cluster.plans import Plan
from cluster.snapshot import Snapshot

RECORD = 1
"""The version of the form. It is also the version of `tonnage plan -o json`."""

Recorded = TypeVar("Recorded")

_ACTIONS = {kind.__name__: kind for kind in ACTIONS}


def snapshot_to_json(snapshot: Snapshot) -> str:
    """Raises ConfigError when the snapshot holds NaN or infinity, which JSON has no number for."""
    return _to_json("snapshot", snapshot)


def snapshot_from_json(text: str) -> Snapshot:
    """Raises ConfigError with the first place where the text is no snapshot's record."""
    return _from_json("snapshot", Snapshot, text)


def plan_to_json(plan: Plan) -> str:
    """Raises ConfigError when the plan holds NaN or infinity, which JSON has no number for."""
    return _to_json("plan", plan)


def plan_from_json(text: str) -> Plan:
    """Raises ConfigError with the first place where the text is no plan's record."""
    return _from_json("plan", Plan, text)


def _to_json(what: str, data: object) -> str:
    try:
        return json.dumps({"record": RECORD, what: _plain(data)}, sort_keys=True, allow_nan=False, ensure_ascii=False)
    except ValueError:
        raise ConfigError(Mistake(what, "holds NaN or infinity", "correct the figure where it comes from")) from None


def _plain(value: Any) -> Any:
    """Data as JSON knows it."""
    match value:
        case np.ndarray() | np.generic():
            return value.tolist()
        case tuple() | list() | Names():
            return [_plain(item) for item in value]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
    if is_dataclass(value):
        made = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"action": type(value).__name__, **made} if isinstance(value, Action) else made
    return value


def _from_json(what: str, kind: type[Recorded], text: str) -> Recorded:
    try:
        record = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ConfigError(Mistake(f"{what} record", f"is not JSON: {error}")) from None
    if not isinstance(record, dict) or what not in record:
        raise ConfigError(Mistake(f"{what} record", f"has no {what!r}", "is it a record of something else?"))
    if record.get("record") != RECORD:
        problem = f"is of version {record.get('record')!r}, this Tonnage reads {RECORD}"
        raise ConfigError(Mistake(f"{what} record", problem, "use the version of Tonnage that wrote it"))
    made: Recorded = _read(kind, record[what], what)
    return made


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _read(kind: Any, value: Any, place: str) -> Any:
    """Plain data as the type `kind`. Raises ConfigError at `place`, a path like `snapshot.nodes.gpus`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is np.ndarray:
        return _array(arguments[1], value, place)
    if kind is Names:
        return Names(_read(tuple[str, ...], value, place))
    if origin is tuple:
        return _tuple(arguments, value, place)
    if origin is Literal:
        return value if value in arguments else _refuse(place, f"one of {', '.join(arguments)}", value)
    if origin in (Union, UnionType):
        return None if value is None else _read(next(a for a in arguments if a is not NoneType), value, place)
    if origin is not None and issubclass(origin, Mapping):
        items = _mapping(value, place).items()
        return {key: _read(arguments[1], item, f"{place}.{key}") for key, item in items}
    if kind is Action:
        return _action(_mapping(value, place), place)
    if is_dataclass(kind):
        return _dataclass(kind, _mapping(value, place), place)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    return _refuse(place, kind.__name__, value)


def _array(dtype: Any, value: Any, place: str) -> Any:
    wanted = get_args(dtype)[0]
    try:
        made = np.array(value)
    except ValueError:
        return _refuse(place, "rows of equal length", value)
    kinds = {np.bool_: "b", np.int64: "i", np.float64: "fi"}[wanted]
    if made.size and made.dtype.kind not in kinds:
        return _refuse(place, f"numbers of type {wanted.__name__}", value)
    made = made.astype(wanted)
    made.setflags(write=False)
    return made


def _tuple(arguments: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        _refuse(place, "a list", value)
    return tuple(_read(arguments[0], item, f"{place}[{n}]") for n, item in enumerate(value))


def _action(value: Mapping[str, Any], place: str) -> Any:
    """An action of the kind that its record names."""
    named = dict(value)
    name = named.pop("action", None)
    kind = _ACTIONS.get(str(name))
    return (
        _refuse(f"{place}.action", f"one of {', '.join(_ACTIONS)}", name) if kind is None else _read(kind, named, place)
    )


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else _refuse(place, "an object", value)


def _dataclass(kind: Any, value: Mapping[str, Any], place: str) -> Any:
    hints = _hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ConfigError(Mistake(f"{place}.{unknown[0]}", "there is no such field"))
    made = {name: _read(hints[name], item, f"{place}.{name}") for name, item in value.items()}
    for field in fields(kind):
        if field.name not in made and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(Mistake(f"{place}.{field.name}", "is missing"))
    _check_columns(made, place)
    return kind(**made)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _check_columns(made: Mapping[str, Any], place: str) -> None:
    """Columns of a table are as long as its names; an entry too few would shift the rest unseen."""
    if "names" not in made:
        return
    rows = len(made["names"])
    for name, column in made.items():
        if name != "shapes" and len(column) != rows:
            raise ConfigError(Mistake(f"{place}.{name}", f"has {len(column)} entries for {rows} names"))


def _refuse(place: str, wanted: str, value: Any) -> Any:
    found = repr(value)
    found = found if len(found) <= 60 else found[:59] + "…"
    raise ConfigError(Mistake(place, f"should be {wanted}, not {found}"))
