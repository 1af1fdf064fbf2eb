"""Depth of JSON from the API server, which keeps 10,000 levels where a definition does not look inside.

Readers here recurse, and what nests deeper than they can go would stop them for everybody. Nothing that is read lies
deeper than a dozen levels, so what nests deeper than `DEEPEST` is cut off.
"""

import re
from typing import Any

import msgspec

DEEPEST = 100
"""Levels of maps and lists that are read. Chosen: a pod template in an object of another project has about 20."""

_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*"|[\[\]{}]', re.DOTALL)


def shallow(body: bytes, deepest: int = DEEPEST) -> bytes:
    """JSON in which each map and list that would be the level after `deepest` is null, the same as a field left out."""
    level, kept_from = 0, 0
    kept: list[bytes] = []
    for token in _TOKEN.finditer(body):
        match body[token.start()]:
            case 0x7B | 0x5B:  # { [
                level += 1
                if level == deepest + 1:
                    kept += [body[kept_from : token.start()], b"null"]
            case 0x7D | 0x5D:  # } ]
                if level == deepest + 1:
                    kept_from = token.end()
                level -= 1
    return b"".join([*kept, body[kept_from:]])


def plain(raw: msgspec.Raw | bytes) -> Any:
    """Plain data of JSON, at most about `DEEPEST` levels of it where there are very many."""
    body = bytes(raw)
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        return msgspec.json.decode(shallow(body))


def nests_too_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Whether plain data has more levels of maps and lists than are read."""
    level = [value]
    for _ in range(deepest):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    """Maps and lists directly in a map or a list."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [each for each in inside if isinstance(each, dict | list)]
