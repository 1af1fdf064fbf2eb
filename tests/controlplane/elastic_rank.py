"""One rank of an elastic training job over gloo, as its user may write it: it goes on with whichever ranks are there.

Ranks meet over a folder that all share, as they share their checkpoints. Each says there that it lives; the first of
those that live names the members of the next round when they have changed, and everybody joins it from the last save.
A step takes one sample per rank, in order, and adds up what they say. One process imports torch and forks the ranks,
since eight imports take a busy machine minutes: it reads their names from standard input, and writes their pids.
"""

import json
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

STEP_S, BEAT_S = 0.05, 0.2
GONE_S = 3.0
"""A rank that has not been heard of for so long is gone; a busy machine lets a thread wait for a second."""
TIME_OUT = timedelta(seconds=20)
LENGTH = 16
"""Parameters of the model."""


def sample(number: int) -> list[float]:
    """Whole numbers, so that sums are exact in any order."""
    return [float((number * 7 + index * 3) % 11) for index in range(LENGTH)]


class Meeting:
    """What the ranks know of each other."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.number = folder, name, 0
        for part in ("alive", "rounds"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        threading.Thread(target=self._beat, daemon=True).start()

    def has_changed(self) -> bool:
        """Whether another round has been named than this rank is in; the first rank that lives names it."""
        alive = self._alive()
        last = self._last()
        has_failed = (self.folder / "rounds" / f"{last}.failed").exists()
        if alive[:1] == [self.name] and (has_failed or alive != self._members(last)):
            time.sleep(1.0)  # who starts now starts with others
            if (alive := self._alive())[:1] == [self.name]:
                write(self.folder / "rounds" / str(last + 1), alive)
        return self._last() > self.number

    def joined(self) -> list[str]:
        """Members of the next round that this rank is in."""
        while True:
            if self.has_changed():
                self.number = self._last()
                if self.name in (members := self._members(self.number)):
                    return members
            time.sleep(BEAT_S)

    def fail(self) -> None:
        """Says that a peer of this round is gone, or never came."""
        (self.folder / "rounds" / f"{self.number}.failed").touch()

    def _last(self) -> int:
        return max((int(each.name) for each in (self.folder / "rounds").iterdir() if each.name.isdigit()), default=0)

    def _members(self, number: int) -> list[str]:
        return list(read(self.folder / "rounds" / str(number)) or [])

    def _alive(self) -> list[str]:
        now_s, found = time.time(), (self.folder / "alive").iterdir()
        return sorted(each.name for each in found if now_s - each.stat().st_mtime < GONE_S)

    def _beat(self) -> None:
        while True:
            (self.folder / "alive" / self.name).touch()
            time.sleep(BEAT_S)


def write(path: Path, what: object) -> None:
    made = path.with_name(f".{path.name}.new")
    made.write_text(json.dumps(what), encoding="utf-8")
    made.replace(path)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def main(folder: Path, name: str) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    meeting = Meeting(folder, name)
    while True:
        members = meeting.joined()
        rank, ranks = members.index(name), len(members)
        try:
            store = f"file://{folder / 'rounds'}/store-{meeting.number}"
            distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=TIME_OUT)
            saved = read(folder / "saved") or {"samples": 0, "weights": [0.0] * LENGTH}
            done, weights = saved["samples"], torch.tensor(saved["weights"], dtype=torch.float64)
            distributed.barrier()  # nobody saves before all have read
            is_over = False
            while not is_over:
                time.sleep(STEP_S)
                said = torch.tensor([*sample(done + rank), float(meeting.has_changed())], dtype=torch.float64)
                distributed.all_reduce(said)
                weights, done, is_over = weights + said[:LENGTH], done + ranks, bool(said[LENGTH])
                if rank == 0:
                    write(folder / "saved", {"samples": done, "ranks": ranks, "weights": weights.tolist()})
        except RuntimeError as lost:  # torch's error where a peer is gone
            sys.stderr.write(f"round {meeting.number} is over: {lost}\n")
            meeting.fail()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def forked(folder: Path) -> None:
    """A rank for each name on standard input, until its end, which ends them all."""
    import torch  # noqa: F401 - once for all ranks

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    pids = []
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            main(folder, line.strip())
        pids.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    forked(Path(sys.argv[1]))
