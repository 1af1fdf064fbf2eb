"""Support bundle: a tar file of recorded cycles, settings and versions, for `tonnage replay`.

bundle.json         format version, version of Tonnage, settings (without references to secrets), counts
cycles.json         one entry for each recorded cycle, oldest first
frames/DIGEST.gz    snapshots and plans (controller/brain/frames.py), each once
...                 files that `tonnage bundle` adds for people; replay does not read them
"""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from io import BytesIO
from typing import Any, BinaryIO

import msgspec
from pydantic import ValidationError

from cluster import actions, field_errors, plans
from cluster.errors import UNREADABLE, ConfigError, Mistake
from cluster.frame import FrameError
from cluster.snapshot import Snapshot
from cluster.version import VERSION
from controller.brain.frames import plan_from_frame, snapshot_from_frame
from controller.guard import Limits, guard
from controller.ports import Brain, Outcome
from controller.recording.ring import CycleEntry, Recording, digest, outcome_from, seen_at
from controller.settings import OperatorSettings

FORM = 1
"""Format version of bundles, raised whenever an older reader could misread a newer bundle."""
ABOUT, CYCLES, FRAMES = "bundle.json", "cycles.json", "frames/"


@dataclass(frozen=True, slots=True)
class About:
    """Description of a bundle: its format, origin and settings."""

    form: int
    version: str
    """Version of Tonnage in the operator."""
    identity: str
    made_at_s: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    seen: int = 0
    """Number of cycles since the start of the operator's process."""
    too_large: int = 0
    """Number of cycles not recorded because one alone would have exceeded the limit of bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCycle:
    """One recorded cycle with its decoded snapshot, plans and outcome."""

    entry: CycleEntry
    snapshot: Snapshot
    wanted: plans.Plan
    guarded: plans.Plan
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Bundle:
    """Bundle that was read completely, in a format that this version supports."""

    about: About
    entries: tuple[CycleEntry, ...]
    files: Mapping[str, bytes]
    """Content of every file, by name."""
    name: str = "bundle"
    """Name in error messages."""

    def cycles(self) -> Iterator[RecordedCycle]:
        """Recorded cycles, oldest first. Raises ConfigError if a frame cannot be read."""
        return (self.cycle(entry) for entry in self.entries)

    def cycle(self, entry: CycleEntry) -> RecordedCycle:
        """One recorded cycle. Raises ConfigError if one of its frames cannot be read."""
        frames = {name: self._frame(name) for name in entry.frames}
        try:
            return RecordedCycle(
                entry,
                seen_at(snapshot_from_frame(frames[entry.snapshot]), entry),
                plan_from_frame(frames[entry.wanted]),
                plan_from_frame(frames[entry.guarded]),
                outcome_from(frames[entry.outcome]),
            )
        except FrameError as error:
            place = f"{self.name}, cycle {entry.number}"
            remedy = f"use Tonnage {self.about.version}, which wrote it; this is {VERSION}"
            raise ConfigError(Mistake(place, str(error), remedy)) from error

    def _frame(self, name: str) -> bytes:
        try:
            frame = gzip.decompress(self.files[f"{FRAMES}{name}.gz"])
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(Mistake(f"{self.name}, {FRAMES}{name}.gz", f"is not a gzip file: {error}")) from error
        if digest(frame) != name:
            raise ConfigError(
                Mistake(f"{self.name}, {FRAMES}{name}.gz", "does not match the digest in its name", "copy it again")
            )
        return frame


def about(recording: Recording, settings: Mapping[str, Any], identity: str, made_at_s: float) -> About:
    """Description of a recording's bundle."""
    return About(FORM, VERSION, identity, made_at_s, settings, recording.seen, recording.too_large)


def files_of(about: About, recording: Recording) -> Iterator[tuple[str, bytes]]:
    """Files of a bundle, as (name, content)."""
    entries = [replace(entry, by=entry.by or about.identity) for entry in recording.entries]
    yield ABOUT, _json(about)
    yield CYCLES, _json(entries)
    for name, frame in recording.frames.items():
        yield f"{FRAMES}{name}.gz", frame


def write_tar_gz(to: BinaryIO, files: Iterable[tuple[str, bytes]], made_at_s: float) -> None:
    """Write a compressed tar file; the same files give the same bytes."""
    with gzip.GzipFile(filename="", fileobj=to, mode="wb", mtime=int(made_at_s)) as packed:
        write_tar(packed.write, files, made_at_s)


def write_tar(write: Callable[[bytes], object], files: Iterable[tuple[str, bytes]], made_at_s: float) -> None:
    """Stream a tar file, uncompressed, because most of its content is compressed frames."""
    for name, content in files:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(content), int(made_at_s), 0o644
        write(info.tobuf(tarfile.PAX_FORMAT))
        write(content)
        write(bytes(-len(content) % tarfile.BLOCKSIZE))
    write(bytes(2 * tarfile.BLOCKSIZE))


def read_bundle(content: bytes, name: str = "bundle") -> Bundle:
    """Bundle from these bytes, compressed or not. Raises ConfigError if invalid, truncated or of another format."""
    files = _files(content, name)
    if ABOUT not in files or CYCLES not in files:
        raise ConfigError(
            Mistake(name, f"has no {ABOUT if ABOUT not in files else CYCLES}", "check that it is a support bundle")
        )
    form = _decoded(files[ABOUT], dict[str, Any], f"{name}, {ABOUT}").get("form")
    if form != FORM:
        problem = f"has format {form!r}, this version of Tonnage reads {FORM}"
        raise ConfigError(Mistake(name, problem, "use the version of Tonnage that wrote it"))
    made = _decoded(files[ABOUT], About, f"{name}, {ABOUT}")
    entries = _decoded(files[CYCLES], tuple[CycleEntry, ...], f"{name}, {CYCLES}")
    for entry in entries:
        for each in entry.frames:
            if f"{FRAMES}{each}.gz" not in files:
                raise ConfigError(
                    Mistake(f"{name}, cycle {entry.number}", "its frames are missing", "download it again")
                )
    return Bundle(made, entries, files, name)


def merged(bundles: Iterable[Bundle]) -> Bundle:
    """One bundle from those of several replicas: cycles by time, settings of the replica with the newest cycle."""
    found = sorted(bundles, key=lambda each: each.entries[-1].last_at_s if each.entries else float("-inf"))
    entries = sorted((entry for each in found for entry in each.entries), key=lambda entry: entry.at_s)
    files = {name: content for each in found for name, content in each.files.items()}
    return replace(found[-1], entries=tuple(entries), files=files | {CYCLES: _json(entries)})


def _files(content: bytes, name: str) -> dict[str, bytes]:
    try:
        with tarfile.open(fileobj=BytesIO(content), mode="r:*") as tar:
            files = {each.name: tar.extractfile(each) for each in tar if each.isfile()}
            return {each: b"" if file is None else file.read() for each, file in files.items()}
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ConfigError(Mistake(name, f"is not a tar file: {error}", "check that it is a support bundle")) from error


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=1) + b"\n"


def _decoded(content: bytes, kind: Any, place: str) -> Any:
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE as error:
        raise ConfigError(
            Mistake(place, f"cannot be read: {error}", "use the version of Tonnage that wrote it")
        ) from error


LEFT_OUT = (
    ("kubeconfig",),
    ("context",),
    ("ray", "address"),
    ("ray", "token_file"),
    ("power", "tls"),
)
"""Paths of credentials and addresses of peers. No setting is itself a secret; no plan depends on these."""
UNKNOWN = "extra_forbidden"
"""pydantic's error type for an unknown field."""


def shown(settings: OperatorSettings) -> dict[str, Any]:
    """Settings in the form that a bundle contains."""
    document = settings.model_dump(mode="json")
    for path in LEFT_OUT:
        _remove(document, path)
    return document


def settings_from(document: Mapping[str, Any]) -> tuple[OperatorSettings, tuple[str, ...]]:
    """Settings of a bundle, independent of this process's environment, and the names that this version does not know.

    Raises ConfigError if a known setting has an invalid value.
    """
    left = deepcopy(dict(document))
    try:
        return OperatorSettings(**left), ()
    except ValidationError as error:
        unknown = [each["loc"] for each in error.errors() if each["type"] == UNKNOWN]
    for path in unknown:
        _remove(left, path)
    try:
        return OperatorSettings(**left), tuple(".".join(map(str, path)) for path in unknown)
    except ValidationError as error:
        raise ConfigError(
            tuple(field_errors.setting_mistakes(error, "settings of the bundle", OperatorSettings))
        ) from error


def _remove(document: dict[str, Any], path: tuple[Any, ...]) -> None:
    *above, last = path
    for part in above:
        document = document[part]
    document.pop(last, None)


CENT = 0.005
"""Dollars per hour; costs that differ by less are equal when printed."""

Key = tuple[str, str]
"""Type of an action, and the pod, service or node that it changes."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Action of both plans on the same object, with different values."""

    before: plans.Step
    after: plans.Step


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """One recorded cycle, with the decisions that would be made now."""

    entry: CycleEntry
    before: plans.Plan
    after: plans.Plan
    added: tuple[plans.Step, ...]
    removed: tuple[plans.Step, ...]
    changed: tuple[Changed, ...]

    @property
    def cost_before(self) -> float:
        """Dollars per hour of the services' planned instances."""
        return sum(service.cost_per_hour for service in self.before.services)

    @property
    def cost_after(self) -> float:
        return sum(service.cost_per_hour for service in self.after.services)

    @property
    def is_same(self) -> bool:
        """Whether both plans have the same actions at the same cost."""
        acts = self.added or self.removed or self.changed
        return not acts and abs(self.cost_after - self.cost_before) < CENT


def replayed(cycles: Iterable[RecordedCycle], brain: Brain, limits: Limits, deadline_s: float) -> Iterator[Replayed]:
    """The cycles one after the other, through one brain, so that it may keep what it keeps from plan to plan."""
    for cycle in cycles:
        yield compared(cycle, guard(cycle.snapshot, brain.plan(cycle.snapshot, deadline_s), limits))


def compared(cycle: RecordedCycle, after: plans.Plan) -> Replayed:
    """Comparison of the recorded, guarded plan with another one for the same snapshot."""
    old, new = _by_key(cycle.guarded), _by_key(after)
    return Replayed(
        cycle.entry,
        cycle.guarded,
        after,
        added=tuple(step for key, step in new.items() if key not in old),
        removed=tuple(step for key, step in old.items() if key not in new),
        changed=tuple(
            Changed(old[key], step) for key, step in new.items() if key in old and old[key].action != step.action
        ),
    )


def unplaced_of(plan: plans.Plan) -> Mapping[str, str]:
    """Reason code, by workload."""
    return {each.workload: each.reason.code for each in plan.unplaced}


def _by_key(plan: plans.Plan) -> dict[Key, plans.Step]:
    return {key_of(step.action): step for step in plan.steps()}


def key_of(action: actions.Action) -> Key:
    """Key of an action, whose first field names the object that it changes."""
    about: Any = getattr(action, fields(action)[0].name)
    return type(action).__name__, str(about)
