"""Admission: what a tool call will need, declared or learned.

Needs are learned per command class, by the head of the command and the kind of its arguments, as decaying histograms.
The tool's name says little: shell calls differ 13.7-fold in peak memory (arXiv 2602.09345, section 4).
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from isolation.ledger import MIB, Sandbox

# fmt: off
LIGHT_HEADS = frozenset(
    {
        "cat", "cd", "cp", "cut", "date", "diff", "dirname", "du", "echo", "env", "file", "find", "git", "grep",
        "head", "id", "ls", "mkdir", "mv", "printf", "ps", "pwd", "readlink", "realpath", "rg", "rm", "sed",
        "sleep", "sort", "stat", "tail", "tee", "test", "touch", "tr", "tree", "true", "uname", "uniq", "wc",
        "which", "xargs",
    }
)
# fmt: on
"""Programs of which 19 of 20 calls take less than 10 MiB (measured on 8,110 calls of 225 published runs)."""

WRAPPERS = frozenset({"bash", "env", "nice", "nohup", "poetry", "sh", "sudo", "time", "timeout", "uv", "xvfb-run"})

_COMMANDS = {
    "test": ("pytest", "tox", "nox", "ctest", "jest", "npm test", "cargo test", "go test"),
    "install": ("pip", "pip3", "apt", "apt-get", "conda", "npm install", "npm ci", "yarn install"),
    "build": ("cc", "gcc", "g++", "clang", "make", "ninja", "cmake", "tsc", "rustc", "go build", "cargo build"),
}
_CLASSES = {command: name for name, commands in _COMMANDS.items() for command in commands}
_PYTHON_MODULES = {"pytest": "test", "unittest": "test", "pip": "install", "tox": "test", "build": "build"}


def command_class(command: Sequence[str]) -> str:
    """Class such as `test`, `install`, `build`, `python`, `light` or `other:<program>`; `other:` where it is empty.

    A shell's script has the class of its most demanding command, the last of equals.
    """
    classes = [_class_of(words) for words in _simple_commands(command)]
    return max(reversed(classes), key=lambda kind: PRIOR_BYTES.get(kind, PRIOR_OTHER_BYTES), default="other:")


def _class_of(words: Sequence[str]) -> str:
    head = program_of(words[0])
    second = next((word for word in words[1:] if not word.startswith("-")), "")
    if head.startswith("python"):
        module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
        return _PYTHON_MODULES.get(module.partition(".")[0], "python")
    if head in LIGHT_HEADS:
        return "light"
    return _CLASSES.get(f"{head} {second}") or _CLASSES.get(head) or f"other:{head}"


def program_of(word: str) -> str:
    """Name of a program without its folder."""
    return word.rpartition("/")[2]


def _simple_commands(command: Sequence[str]) -> Iterator[list[str]]:
    """The command behind `timeout 60`, `env` and the like; each of a shell's script, up to its first here-document."""
    words = [word for word in command if not re.fullmatch(r"\w+=\S*", word)]
    while words and program_of(words[0]) in WRAPPERS:
        options = [word for word in words[1:] if word.startswith("-")]
        rest = [word for word in words[1:] if not word.startswith("-")]
        if program_of(words[0]) in ("bash", "sh") and rest and any(word.endswith("c") for word in options):
            for part in re.split(r"&&|\|\||[;|\n]", rest[0].partition("<<")[0]):
                yield from _simple_commands(part.split())
            return
        words = [word for position, word in enumerate(rest) if position or not word.rstrip("smh").isdigit()]
        if words and words[0] == "run":
            words = words[1:]
    if words:
        yield words


BUCKETS_PER_OCTAVE = 4
"""A bucket is 19 % wide: below the spread of calls of one class by far."""
HALF_LIFE_CALLS = 64
"""Calls after which an observation counts half; a class changes with the repository that an agent works on."""
ENOUGH_CALLS = 8
"""Weight below which the prior decides: the 90th percentile of fewer is their maximum or a guess."""

PRIOR_BYTES: Mapping[str, int] = {
    "light": 10 * MIB,
    "test": 512 * MIB,
    "install": 256 * MIB,
    "build": 256 * MIB,
    "python": 192 * MIB,
}
"""95th percentiles of calls in published runs (arXiv 2602.09345: tests 518 MB, install 233 MB)."""
PRIOR_OTHER_BYTES = 128 * MIB
PRIOR_S = 10.0
"""Duration of a call of which nothing is known."""


@dataclass(frozen=True, slots=True)
class NeedHistogram:
    """Weights by quarter octave."""

    weights: Mapping[int, float] = field(default_factory=dict)

    def with_value(self, value: float) -> "NeedHistogram":
        decay = 0.5 ** (1 / HALF_LIFE_CALLS)
        bucket = math.ceil(math.log2(max(1.0, value)) * BUCKETS_PER_OCTAVE)
        weights = {key: kept * decay for key, kept in self.weights.items() if kept > 1e-3}
        return NeedHistogram({**weights, bucket: weights.get(bucket, 0.0) + 1.0})

    @property
    def weight(self) -> float:
        return sum(self.weights.values())

    def quantile(self, fraction: float) -> float:
        """Upper edge of the bucket that holds the quantile. The histogram must not be empty."""
        left = fraction * self.weight
        for bucket in sorted(self.weights):
            left -= self.weights[bucket]
            if left <= 1e-9:
                return float(2 ** (bucket / BUCKETS_PER_OCTAVE))
        return float(2 ** (max(self.weights) / BUCKETS_PER_OCTAVE))


@dataclass(frozen=True, slots=True)
class LearnedNeeds:
    """Knowledge of past calls by command class. A tenant's are named `<tenant>/<class>`: nobody learns from another's
    calls, nor is misled by them.
    """

    peak_bytes: Mapping[str, NeedHistogram] = field(default_factory=dict)
    duration_ms: Mapping[str, NeedHistogram] = field(default_factory=dict)

    def after(self, command_class: str, peak_bytes: int, duration_s: float) -> "LearnedNeeds":
        peaks = self.peak_bytes.get(command_class, NeedHistogram()).with_value(peak_bytes)
        durations = self.duration_ms.get(command_class, NeedHistogram()).with_value(duration_s * 1e3)
        return replace(
            self,
            peak_bytes={**self.peak_bytes, command_class: peaks},
            duration_ms={**self.duration_ms, command_class: durations},
        )

    def need_bytes(self, command_class: str, fraction: float) -> int:
        """Quantile of the class's peaks; the prior where fewer calls than ENOUGH_CALLS count."""
        peaks = self.peak_bytes.get(command_class)
        if peaks is None or peaks.weight < ENOUGH_CALLS:
            return PRIOR_BYTES.get(command_class.rpartition("/")[2], PRIOR_OTHER_BYTES)
        return round(peaks.quantile(fraction))

    def expected_s(self, command_class: str) -> float:
        """Median duration of the class."""
        durations = self.duration_ms.get(command_class)
        return PRIOR_S if durations is None else durations.quantile(0.5) / 1e3


_UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(k|Ki|[MGT]i?)?")


def bytes_from(hint: object) -> int | None:
    """Bytes of a hint such as `2Gi`, 512 or 1.5e9; None where it means no positive number of bytes."""
    if isinstance(hint, str):
        found = _QUANTITY.fullmatch(hint.strip())
        value = float(found[1]) * _UNITS[found[2] or ""] if found else math.nan
    elif isinstance(hint, int | float) and not isinstance(hint, bool):
        value = float(min(hint, 2**63))
    else:
        return None
    return int(min(value, 2.0**63)) if value >= 1 else None


def claim_bytes(
    hint_bytes: int | None, command_class: str, sandbox: Sandbox, learned: LearnedNeeds, fraction: float
) -> int:
    """Claim of a call: the hint, or the learned quantile of its class; at most what the sandbox's budget leaves.

    A larger hint than that can never be met: such a call is taken for what its class needs.
    """
    room_bytes = sandbox.budget_bytes - sandbox.agent_bytes
    if hint_bytes is None or hint_bytes > room_bytes:
        hint_bytes = learned.need_bytes(command_class, fraction)
    return max(1, min(hint_bytes, room_bytes))
