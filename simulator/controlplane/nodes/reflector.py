"""Reflector of API objects: a list, then a watch from its version, and a new list when that breaks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from simulator.controlplane.nodes.connection import Connection, UnreachableError

WATCH_FOR_S = 600
"""Time after which the server ends a watch."""

SILENT_S = 150.0
"""Bookmarks come about once a minute: a connection that is silent for longer is broken."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listener(Generic[T]):
    """Callbacks, called in the server's order."""

    kind: type[T]
    """Slim struct: fields that it does not name are not decoded."""
    on_list: Callable[[list[T]], None]
    """Complete list; objects known before that are not in it are gone."""
    on_change: Callable[[T], None]
    on_gone: Callable[[T], None]


class _Versioned(msgspec.Struct, rename="camel"):
    resource_version: str


class _List(msgspec.Struct):
    metadata: _Versioned
    items: list[msgspec.Raw]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Object(msgspec.Struct):
    metadata: _Versioned


class _ExpiredError(Exception):
    """The server no longer has the changes since then (410): list again."""


async def reflect(connection: Connection, path: str, selector: str, listener: Listener[T]) -> None:
    """Passes all objects at `path` that match the query `selector` to the listener, without end."""
    wait_s = FIRST_WAIT_S
    while True:
        try:
            version = await _list(connection, f"{path}?{selector}", listener)
            wait_s = FIRST_WAIT_S
            while True:
                version = await _watch(connection, f"{path}?{selector}", version, listener)
        except (UnreachableError, _ExpiredError):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)


async def _list(connection: Connection, query: str, listener: Listener[T]) -> str:
    """Lists the objects. Returns the list's version."""
    # Version 0: from the server's cache, which costs etcd nothing.
    answer = await connection.send("GET", f"{query}&resourceVersion=0")
    if not answer.is_ok:
        raise UnreachableError(f"listing {query}: {answer.status} {answer.body[:200].decode(errors='replace')}")
    read = msgspec.json.decode(answer.body, type=_List)
    decoder = msgspec.json.Decoder(listener.kind)
    listener.on_list([decoder.decode(item) for item in read.items])
    return read.metadata.resource_version


async def _watch(connection: Connection, query: str, version: str, listener: Listener[T]) -> str:
    """Version of the watch when the server ended it normally."""
    decoder, events = msgspec.json.Decoder(listener.kind), msgspec.json.Decoder(_Event)
    watch = f"{query}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_FOR_S}&resourceVersion={version}"
    async for line in connection.lines(watch, SILENT_S):
        event = events.decode(line)
        match event.type:
            case "ADDED" | "MODIFIED":
                listener.on_change(decoder.decode(event.object))
            case "DELETED":
                listener.on_gone(decoder.decode(event.object))
            case "ERROR":
                raise _ExpiredError
        version = msgspec.json.decode(event.object, type=_Object).metadata.resource_version
    return version
