"""Dockerfile as a list of instructions, and its steps run one by one in a folder instead of an image."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"


@dataclass(frozen=True)
class Step:
    word: str
    """FROM, RUN, COPY, ..."""
    rest: str


def steps() -> list[Step]:
    """In order, without comments, continued lines joined."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def copied_from_the_context() -> list[str]:
    """Every path of the repository that goes into the build."""
    return [
        source.rstrip("/")
        for step in steps()
        if step.word == "COPY" and not step.rest.startswith("--from")
        for source in step.rest.split()[:-1]
    ]


class Bench:
    """A folder in the place of `/`: /src and /opt/tonnage stand in it, and everything else is this machine's."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._cwd = folder
        self._environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PIP_INDEX_URL") if name in os.environ
        }
        self.outputs: dict[str, str] = {}
        """What each RUN printed."""

    def take(self, step: Step) -> None:
        """Do what the step says. The stages share the folder, so what one copies from another is there already."""
        match step.word:
            case "WORKDIR":
                self._cwd = Path(self._here(step.rest))
                self._cwd.mkdir(parents=True, exist_ok=True)
            case "COPY" if not step.rest.startswith("--from"):
                self._copy(*step.rest.split())
            case "ENV":
                for assignment in step.rest.split():
                    name, _, value = assignment.partition("=")
                    self._environment[name] = self._here(value).replace("$PATH", self._environment["PATH"])
            case "RUN":
                self._run(step.rest)

    def _here(self, text: str) -> str:
        return re.sub(r"(?<![\w.])/(opt/tonnage|src|tmp)\b", lambda found: str(self._root / found[1]), text)

    def _copy(self, *paths: str) -> None:
        *sources, target = paths
        for source in (ROOT / each for each in sources):
            if source.is_dir():
                shutil.copytree(source, self._cwd / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self._cwd / target)

    def _run(self, command: str) -> None:
        run = subprocess.run(  # noqa: S602 - a RUN is a shell's line
            self._here(command),
            shell=True,
            cwd=self._cwd,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
        self.outputs[command] = run.stdout
