"""Support bundles: a tar file of recorded cycles, settings and versions, that `tonnage replay` plays.

bundle.json         form, version of Tonnage, settings (without what leads to a secret), counts
cycles.json         one entry for each recorded cycle, oldest first
frames/DIGEST.gz    snapshots and plans (controller/brain/frames.py), each once
...                 what `tonnage bundle` adds for people; no reader needs it
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, BinaryIO, Protocol

import msgspec

from cluster.errors import ConfigError, Mistake
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.version import VERSION
from controller.brain.frames import FrameError, plan_from_frame, snapshot_from_frame
from controller.ports import Outcome
from controller.recording.ring import Entry, Recording, digest, outcome_from, seen_at

FORM = 1
"""Raised whenever a reader of before could misread a bundle of now."""
ABOUT, CYCLES, FRAMES = "bundle.json", "cycles.json", "frames/"


class Sink(Protocol):
    """Takes the bytes of a file, in order."""

    def write(self, content: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class About:
    """What a bundle says of itself."""

    form: int
    version: str
    """Of Tonnage, in the operator."""
    identity: str
    made_at_s: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    seen: int = 0
    """Cycles since the start of the operator's process."""
    too_large: int = 0
    """Cycles that were not recorded because one alone would have exceeded the bound of bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCycle:
    """One cycle as it was."""

    entry: Entry
    snapshot: Snapshot
    wanted: Plan
    guarded: Plan
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read: whole, and of a form that this version knows."""

    about: About
    entries: tuple[Entry, ...]
    files: Mapping[str, bytes]
    """Every file, by its name."""
    name: str = "bundle"
    """For messages."""

    def cycles(self) -> Iterator[RecordedCycle]:
        """The recorded cycles, oldest first. Raises ConfigError where a frame cannot be read."""
        return (self.cycle(entry) for entry in self.entries)

    def cycle(self, entry: Entry) -> RecordedCycle:
        """One recorded cycle. Raises ConfigError where a frame of it cannot be read."""
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
            raise ConfigError(Mistake(f"{self.name}, {FRAMES}{name}.gz", f"is no gzip: {error}")) from error
        if digest(frame) != name:
            raise ConfigError(Mistake(f"{self.name}, {FRAMES}{name}.gz", "is not what its name says", "copy it again"))
        return frame


def about(recording: Recording, settings: Mapping[str, Any], identity: str, made_at_s: float) -> About:
    """What the bundle of a recording says of itself."""
    return About(FORM, VERSION, identity, made_at_s, settings, recording.seen, recording.too_large)


def files_of(about: About, recording: Recording) -> Iterator[tuple[str, bytes]]:
    """The files of a bundle, (name, content)."""
    entries = [replace(entry, by=entry.by or about.identity) for entry in recording.entries]
    yield ABOUT, _json(about)
    yield CYCLES, _json(entries)
    for name, frame in recording.frames.items():
        yield f"{FRAMES}{name}.gz", frame


def write_tar_gz(to: BinaryIO, files: Iterable[tuple[str, bytes]], made_at_s: float) -> None:
    """A compressed tar file; the same files give the same bytes."""
    with gzip.GzipFile(filename="", fileobj=to, mode="wb", mtime=int(made_at_s)) as packed:
        write_tar(packed, files, made_at_s)


def write_tar(to: Sink, files: Iterable[tuple[str, bytes]], made_at_s: float) -> None:
    """Stream a tar file. It is not compressed as a whole: most of it is compressed frames."""
    for name, content in files:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(content), int(made_at_s), 0o644
        to.write(info.tobuf(tarfile.PAX_FORMAT))
        to.write(content)
        to.write(bytes(-len(content) % tarfile.BLOCKSIZE))
    to.write(bytes(2 * tarfile.BLOCKSIZE))


def read_bundle(content: bytes, name: str = "bundle") -> Bundle:
    """A bundle of these bytes, compressed or not. Raises ConfigError when it is none, cut short, or of another form."""
    files = _files(content, name)
    if ABOUT not in files or CYCLES not in files:
        raise ConfigError(Mistake(name, f"has no {ABOUT if ABOUT not in files else CYCLES}", "is it a support bundle?"))
    form = _decoded(files[ABOUT], dict[str, Any], f"{name}, {ABOUT}").get("form")
    if form != FORM:
        problem = f"is of form {form!r}, this Tonnage reads {FORM}"
        raise ConfigError(Mistake(name, problem, "use the version of Tonnage that wrote it"))
    made = _decoded(files[ABOUT], About, f"{name}, {ABOUT}")
    entries = _decoded(files[CYCLES], tuple[Entry, ...], f"{name}, {CYCLES}")
    for entry in entries:
        for each in entry.frames:
            if f"{FRAMES}{each}.gz" not in files:
                raise ConfigError(Mistake(f"{name}, cycle {entry.number}", "its frames are missing", "fetch it again"))
    return Bundle(made, entries, files, name)


def merged(bundles: Iterable[Bundle]) -> Bundle:
    """One bundle of those of several replicas: cycles by time, settings of the one whose cycle is newest."""
    found = sorted(bundles, key=lambda each: each.entries[-1].last_at_s if each.entries else float("-inf"))
    entries = sorted((entry for each in found for entry in each.entries), key=lambda entry: entry.at_s)
    files = {name: content for each in found for name, content in each.files.items()}
    return replace(found[-1], entries=tuple(entries), files=files | {CYCLES: _json(entries)})


def _files(content: bytes, name: str) -> dict[str, bytes]:
    try:
        with tarfile.open(fileobj=BytesIO(content), mode="r:*") as tar:
            return {each.name: _read(tar, each) for each in tar if each.isfile()}
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ConfigError(Mistake(name, f"is no tar file: {error}", "is it a support bundle?")) from error


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file is not None else b""


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=1) + b"\n"


def _decoded(content: bytes, kind: Any, place: str) -> Any:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            Mistake(place, f"cannot be read: {error}", "use the version of Tonnage that wrote it")
        ) from error
