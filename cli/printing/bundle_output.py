"""Bundles and replays in print: readable files of a bundle, and differences found by a replay."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from cli.printing.differences import Document
from cli.printing.plan_figures import figure, money, named, plain
from cli.printing.tables import table
from cluster.arrays import Names
from cluster.plans import Reason, Step
from cluster.version import VERSION
from cluster.workloads import InstanceType
from controller.api.notation import rfc3339
from controller.recording.bundle import Bundle, RecordedCycle, Replayed, key_of, unplaced_of

SNAPSHOT, DECISIONS, EVENTS = "latest-snapshot.json", "decisions.json", "events.json"


def fetched(at_s: float, unread: Sequence[str]) -> Document:
    """Time and machine of the fetch, and the parts of the bundle that could not be read."""
    return {
        "at": rfc3339(at_s),
        "tonnage": VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "left_out": list(unread),
    }


def readable_files(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
    """Decisions of each cycle, and the latest snapshot, so that people can review a bundle before they send it."""
    cycles = list(bundle.cycles())
    yield DECISIONS, as_json([decided(cycle) for cycle in cycles])
    if cycles:
        # Fields of a snapshot, with services' instance types by name: JSON has no keys of several fields.
        snapshot = cycles[-1].snapshot
        services = [{key: _by_name(each) for key, each in _fields(s).items()} for s in snapshot.services]
        yield SNAPSHOT, as_json({**_fields(snapshot), "services": services})


def decided(cycle: RecordedCycle) -> Document:
    """One cycle as a document."""
    entry = cycle.entry
    return {
        "cycle": entry.number,
        "by": entry.by,
        "at": rfc3339(entry.at_s),
        "repeats": entry.repeats,
        "stage_s": dict(entry.stage_s),
        "done": [step_document(step) for step in cycle.outcome.done],
        "undone": [step_document(each.step, failure=each.reason) for each in cycle.outcome.undone],
        "refused": [step_document(each.step, refusal=each.reason) for each in cycle.guarded.refused],
        "unplaced": plain(cycle.guarded.unplaced),
        "services": {each.service: named(each.instances) for each in cycle.guarded.services},
        "cost_per_hour": figure(sum(each.cost_per_hour for each in cycle.guarded.services)),
    }


def step_document(step: Step, **more: Reason) -> Document:
    """Action with its fields and its reason, as plain data; more: further reasons, by name."""
    fields: Document = msgspec.to_builtins(step.action.values())
    reasons = {name: plain(reason) for name, reason in {"reason": step.reason, **more}.items()}
    return {"action": type(step.action).__name__, **fields, **reasons}


def as_json(value: Any) -> bytes:
    """Any data as indented JSON, for people; no code reads it back."""
    plain = msgspec.json.encode(value, enc_hook=_plain, order="deterministic")
    return msgspec.json.format(plain, indent=1) + b"\n"


def _fields(value: Any) -> Document:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _by_name(value: Any) -> Any:
    """Figures by instance type as such by its name; anything else as it is."""
    if isinstance(value, Mapping) and all(isinstance(each, InstanceType) for each in value):
        return named(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value[:] if isinstance(value, Names) else str(value)


def summary(bundle: Bundle) -> str:
    """Summary of a bundle in one line."""
    entries = bundle.entries
    if not entries:
        return f"Tonnage {bundle.about.version}, no cycle recorded"
    snapshots = len({entry.snapshot for entry in entries})
    return (
        f"Tonnage {bundle.about.version}, {len(entries)} cycles from {rfc3339(entries[0].at_s)} "
        f"to {rfc3339(entries[-1].last_at_s)}, {snapshots} snapshots"
    )


def replay_document(bundle: Bundle, cycles: Sequence[Replayed]) -> Document:
    """Replay as plain data, for programs."""
    return {
        "replay": 1,
        "recorded_by": bundle.about.version,
        "is_same": all(each.is_same for each in cycles),
        "cycles": [_cycle(each) for each in cycles],
    }


def _cycle(each: Replayed) -> Document:
    before, after = unplaced_of(each.before), unplaced_of(each.after)
    return {
        "cycle": each.entry.number,
        "by": each.entry.by,
        "at": rfc3339(each.entry.at_s),
        "is_same": each.is_same,
        "actions": len(each.before.actions),
        "added": list(map(step_document, each.added)),
        "removed": list(map(step_document, each.removed)),
        "changed": [
            {"before": step_document(both.before), "after": step_document(both.after)} for both in each.changed
        ],
        "cost_per_hour_before": figure(each.cost_before),
        "cost_per_hour_after": figure(each.cost_after),
        "cut_short_before": plain(each.before.cut_short),
        "cut_short_after": plain(each.after.cut_short),
        "unplaced": [
            {"workload": name, "before": before.get(name), "after": after.get(name)}
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ],
    }


def replay_tables(cycles: Sequence[Replayed]) -> Iterator[str]:
    """Cycles that differ, with their actions, and a summary line."""
    differing = [each for each in cycles if not each.is_same]
    if differing:
        rows = []
        for each in differing:
            counts = (len(each.added), len(each.removed), len(each.changed))
            costs = (money(each.cost_before), money(each.cost_after))
            rows.append((str(each.entry.number), rfc3339(each.entry.at_s), *map(str, counts), *costs))
        yield table(("CYCLE", "AT", "ADDED", "REMOVED", "CHANGED", "$/HOUR", "$ NOW"), rows)
        yield "\n".join(line for each in differing for line in _lines(each)) + "\n"
    same = len(cycles) - len(differing)
    yield f"{len(cycles)} cycles replayed: {same} the same, {len(differing)} different."


def _lines(each: Replayed) -> Iterator[str]:
    head = f"cycle {each.entry.number}"
    yield from (f"{head}: + {_words(step)}" for step in each.added)
    yield from (f"{head}: - {_words(step)}" for step in each.removed)
    for both in each.changed:
        yield f"{head}: ~ {_words(both.before)} → {_words(both.after)}"
    yield from (f"{head}: time cut the recorded plan short: {reason.words}" for reason in each.before.cut_short)
    yield from (f"{head}: time cut this plan short: {reason.words}" for reason in each.after.cut_short)


def _words(step: Step) -> str:
    return f"{action_words(step)}: {step.reason.words}"


def action_words(step: Step) -> str:
    kind, about = key_of(step.action)
    rest = []
    for name, value in list(msgspec.to_builtins(step.action.values()).items())[1:]:
        words = str(value)
        if isinstance(value, dict):
            words = " ".join(f"{key}={item}" for key, item in value.items())
        elif isinstance(value, list | tuple):
            words = ",".join(map(str, value))
        rest.append(f"{name} {words}")
    return f"{kind} {about} ({', '.join(rest)})"
