"""Background work on an embedded Ray whose processes are killed and frozen, beside an operator's cycles.

    python -m tests.rigs.background_faults kills --minutes 20 --every 30
    python -m tests.rigs.background_faults losses

Every execution of a task is noted in a file, so what a killed one had done is known and counts as lost. Plans are made
in the process of the host, as in the operator's, while its tasks run: fits of load histories, and the plans' own
searches of mixes.
"""

import json
import os
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread

import numpy as np

from autoscaler.series import regular
from cluster.snapshot import Snapshot
from controller.background import load_fits, mix_search
from controller.background.host import BackgroundHost
from controller.background.kinds import KINDS as REAL
from controller.background.launcher import ChildDriver
from controller.background.on_ray import DriverStart
from controller.background.tasks import BackgroundTask, TaskFunction, digest_of
from controller.brain.inline import InlineBrain, decisions_from
from controller.settings import settings_from
from simulator.scaling.traces import generated_trace
from tests.builders.many_services import tight_manifests
from tests.mix_exact.comparison import observed
from tests.rigs.background_fits import session_of

NOTES = "BACKGROUND_NOTES"
"""Variable that names the file of notes."""
HOG = "hog"
"""Kind of task that takes too much memory when it runs for the first time."""
HOG_SHARE, ROOM_SHARE = 0.2, 0.1
"""Share of the machine's memory that such a task takes, and that is free below Ray's threshold."""
OPEN = 8
"""Open tasks: enough for every worker."""
WITHIN_S, NOTICED_S = 600.0, 120.0
Row = dict[str, object]


def _note(what: str, task: str) -> None:
    line = json.dumps({"at_s": time.monotonic(), "what": what, "task": task, "pid": os.getpid()}) + "\n"
    with Path(os.environ[NOTES]).open("a", encoding="ascii") as file:
        file.write(line)


def noted(real: TaskFunction, *inputs: bytes) -> bytes:
    task = digest_of(b" ".join(inputs))
    _note("began", task)
    value = real(*inputs)
    _note("ended", task)
    return value


def hog(path: bytes) -> bytes:
    """Takes a share of the machine's memory until it is ended; the second time it does not."""
    mark = Path(path.decode())
    if not mark.exists():
        mark.touch()
        taken = np.ones(int(HOG_SHARE * _memory_bytes()["MemTotal"]) // 8)
        time.sleep(WITHIN_S)
        return bytes(int(taken[0]))
    return b"again"


KINDS: Mapping[str, TaskFunction] = {**{kind: partial(noted, real) for kind, real in REAL.items()}, HOG: hog}
"""The operator's kinds of tasks, with notes."""


def _memory_bytes() -> Mapping[str, int]:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a task, until its end or until its worker's."""

    task: str
    for_s: float
    is_whole: bool


def executions(notes: Path, ended: Mapping[int, float]) -> list[Execution]:
    """All of them. ended: when processes were killed, by pid; of others that did not finish, the last note counts."""
    open_by, found, last_s = dict[int, tuple[str, float]](), list[Execution](), 0.0
    for line in notes.read_text(encoding="ascii").splitlines():
        each = json.loads(line)
        last_s = each["at_s"]
        if each["what"] == "began":
            open_by[each["pid"]] = each["task"], last_s
        else:
            task, began_s = open_by.pop(each["pid"])
            found.append(Execution(task, last_s - began_s, is_whole=True))
    left = ((task, began_s, ended.get(pid, last_s)) for pid, (task, began_s) in open_by.items())
    return found + [Execution(task, over_s - began_s, is_whole=False) for task, began_s, over_s in left]


def kept_share(runs: Iterable[Execution]) -> float:
    """Share of all time in tasks whose result counted: the first whole run of each."""
    useful, total, seen = 0.0, 0.0, set[str]()
    for each in runs:
        total += each.for_s
        if each.is_whole and each.task not in seen:
            seen.add(each.task)
            useful += each.for_s
    return useful / total if total else 1.0


@dataclass(slots=True)
class Cycles:
    """Plans of a fleet whose demand moves each time, made in this process as often as an operator's busy ones."""

    host: BackgroundHost
    every_s: float = 2.0
    services: int = 3
    deadline_s: float = field(default_factory=lambda: settings_from({}).plan_deadline_s)
    late_s: list[float] = field(default_factory=list)
    """By how much each plan was later than its deadline; below zero: earlier."""
    failed: list[Exception] = field(default_factory=list)
    _over: Event = field(default_factory=Event)

    @contextmanager
    def run(self) -> Iterator[None]:
        thread = Thread(target=self._plan, name="cycles")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _plan(self) -> None:
        brain = InlineBrain(decisions_from(settings_from({})))
        searches = mix_search.MixSearches(brain.memory.mix, self.host)
        fleet, chance = observed(tight_manifests(3, services=self.services)), np.random.default_rng(1)
        while not self._over.wait(self.every_s):
            try:
                searches.turn()
                began_s = time.monotonic()
                brain.plan(moved(fleet, chance), self.deadline_s)
                self.late_s.append(time.monotonic() - began_s - self.deadline_s)
            except Exception as error:  # noqa: BLE001 - reported by who reads the figures
                self.failed.append(error)
                return


def moved(fleet: Snapshot, chance: np.random.Generator) -> Snapshot:
    """The fleet with a hundredth more or less of each service's demand."""
    services = tuple(
        replace(each, demand=replace(each.demand, rate_per_s=each.demand.rate_per_s * float(chance.uniform(0.98, 1.0))))
        if each.demand
        else each
        for each in fleet.services
    )
    return replace(fleet, services=services)


@dataclass(slots=True)
class Work:
    """Host with a driver of its own on Ray, and as many open fits as its workers need."""

    host: BackgroundHost
    child: ChildDriver
    notes: Path
    batch: int
    days: int
    asked: dict[str, BackgroundTask] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)
    """Results by task."""
    failed: int = 0
    ended: dict[int, float] = field(default_factory=dict)
    """Instants at which processes were killed, by pid."""
    _numbers: Iterator[int] = field(default_factory=count)

    def turn(self, wait_s: float = 0.5, *, is_more: bool = True) -> int:
        """Takes results, and gives new tasks if there should be more; the number of results."""
        found = self.host.results(load_fits.KIND, wait_s)
        for each in found:
            if each.error:  # its workers were killed four times in a row: an operator asks again
                self.failed += 1
                del self.asked[each.digest]
                continue
            self.values[each.digest] = each.value
        while is_more and len(self.asked) - len(self.values) < OPEN:
            task = load_fits.task_of([self._history() for _ in range(self.batch)])
            self.asked[task.digest] = task
            self.host.submit([task])
        return len(found)

    def go_on(self, for_s: float) -> None:
        over_s = time.monotonic() + for_s
        while time.monotonic() < over_s:
            self.turn()

    def finish(self, more: int = 1) -> float:
        """Seconds until so many more results have come."""
        began_s = time.monotonic()
        while more > 0:
            more -= self.turn()
            if time.monotonic() > began_s + WITHIN_S:
                raise TimeoutError(f"no result within {WITHIN_S:.0f} s: {self.host.standing}")
        return time.monotonic() - began_s

    def send(self, number: signal.Signals, *names: str, chance: np.random.Generator | None = None) -> list[int]:
        """Sends a signal to processes whose command line has one of these names in it, or to one of them by chance;
        returns their ids."""
        found = [pid for pid in session_of(self.child.folder) if any(name in _command(pid) for name in names)]
        if chance is not None:
            found = [int(chance.choice(found))] if found else []
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                if number == signal.SIGKILL:
                    self.ended[pid] = time.monotonic()
        return found

    def _history(self) -> load_fits.LoadHistory:
        number = next(self._numbers)
        trace = generated_trace(number % 25, days=self.days, step_s=600.0).values * (1 + number // 25)
        return load_fits.LoadHistory(f"d/{number}", regular(0.0, 600.0, trace))


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


@contextmanager
def work_on_ray(cpus: int, batch: int, days: int, variables: Sequence[str] = ()) -> Iterator[Work]:
    """variables: `NAME=value` of the driver's environment, such as Ray's own."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        start = DriverStart("embedded", cpus=cpus, registry="tests.rigs.background_faults")
        command = ("/usr/bin/env", *variables, sys.executable, "-m", "controller.background.driver")
        child = ChildDriver(start, command=command, given={**os.environ, NOTES: str(notes)})
        host = BackgroundHost([child])
        host.want(wanted=True)
        try:
            yield Work(host, child, notes, batch, days)
        finally:
            host.close()


RUNS_A_TASK = "ray::run_task"


def kills(minutes: float, every_s: float, cpus: int = 2, batch: int = load_fits.BATCH, days: int = 14) -> Row:
    """A worker that runs a task is killed again and again; at the end the store still has everything."""
    with work_on_ray(cpus, batch, days) as work:
        cycles, chance, killed = Cycles(work.host), np.random.default_rng(7), 0
        with cycles.run():
            work.finish()
            began_s, over_s = time.monotonic(), time.monotonic() + 60 * minutes
            while time.monotonic() + every_s < over_s:
                work.go_on(every_s * float(chance.uniform(0.9, 1.1)))
                killed += len(work.send(signal.SIGKILL, RUNS_A_TASK, chance=chance))
            work.go_on(every_s)
            took_s = time.monotonic() - began_s
        runs = executions(work.notes, work.ended)
        from_store, again = kept_in_store(work)
        driver_losses, folder = work.host.standing.losses.total(), work.child.folder
    return {
        "minutes": round(took_s / 60, 1),
        "workers_killed": killed,
        "tasks_done": len(work.values),
        "tasks_failed": work.failed,
        "runs_lost": sum(not each.is_whole for each in runs),
        "work_kept_share": round(kept_share(runs), 4),
        "task_mean_s": round(float(np.mean([each.for_s for each in runs if each.is_whole])), 2),
        "drivers_lost": driver_losses,
        "from_store": from_store,
        "run_again": again,
        **_left(cycles, folder),
    }


def kept_in_store(work: Work) -> tuple[int, int]:
    """(results that come at once when all that is done is asked for again, runs that began for them)."""
    work.host.want(wanted=False)  # what is open is dropped, and nothing runs from here on
    work.host.results(load_fits.KIND)
    before = len(work.notes.read_text(encoding="ascii").splitlines())
    work.host.submit(work.asked[digest] for digest in work.values)
    came = {each.digest: each.value for each in work.host.results(load_fits.KIND, 5.0)}
    same = sum(came.get(digest) == value for digest, value in work.values.items())
    return same, len(work.notes.read_text(encoding="ascii").splitlines()) - before


DRIVER, RAYLET, GCS = "controller.background.driver", "raylet/raylet", "gcs_server"
LOSSES: Mapping[str, tuple[signal.Signals, tuple[str, ...]]] = {
    "driver killed": (signal.SIGKILL, (DRIVER,)),
    "raylet killed": (signal.SIGKILL, (RAYLET,)),
    "GCS killed": (signal.SIGKILL, (GCS,)),
    "head killed": (signal.SIGKILL, (GCS, RAYLET)),
    "driver frozen": (signal.SIGSTOP, (DRIVER,)),
    "raylet frozen": (signal.SIGSTOP, (RAYLET,)),
    "GCS frozen": (signal.SIGSTOP, (GCS,)),
    "head frozen": (signal.SIGSTOP, (GCS, RAYLET)),
}
"""Signal and processes of each loss."""
MEMORY = "memory threshold reached"


def losses(names: Sequence[str] = (*LOSSES, MEMORY), cpus: int = 2, batch: int = 2, days: int = 4) -> Iterator[Row]:
    """A row for each: what is lost comes back, and nothing of it is left."""
    memory = _memory_bytes()
    room = (memory["MemTotal"] - memory["MemAvailable"]) / memory["MemTotal"] + ROOM_SHARE
    variables = [f"RAY_memory_usage_threshold={room:.3f}", "RAY_memory_monitor_refresh_ms=250"]
    for name in names:
        with work_on_ray(cpus, batch, days, variables if name == MEMORY else ()) as work:
            cycles = Cycles(work.host)
            with cycles.run():
                work.finish()
                was, drivers = Path(work.child.folder), work.host.standing.losses.total()
                began_s = time.monotonic()
                if name == MEMORY:
                    work.host.submit([BackgroundTask(HOG, (str(work.notes.with_name("mark")).encode(),))])
                else:
                    number, processes = LOSSES[name]
                    work.send(number, *processes)
                waits_s = WITHIN_S if name == MEMORY else NOTICED_S
                is_noticed = False
                while not is_noticed and time.monotonic() < began_s + waits_s:
                    work.turn(is_more=False)
                    is_noticed = bool(work.host.results(HOG)) if name == MEMORY else _lost(work) > drivers
                noticed_s = time.monotonic() - began_s
                work.finish(OPEN)
                recovered_s = time.monotonic() - began_s
                left_of_lost = name != MEMORY and is_noticed and (was.exists() or bool(session_of(str(was))))
            from_store, again = kept_in_store(work)
            folder, lost = work.child.folder, work.host.standing.losses
        yield {
            "fault": name,
            "noticed_s": round(noticed_s, 1) if is_noticed else None,  # without its tables Ray runs what comes
            "recovered_s": round(recovered_s, 1),
            "losses": dict(lost),
            "tasks_done": len(work.values),
            "from_store": from_store,
            "run_again": again,
            "left_of_lost": left_of_lost,
            **_left(cycles, folder),
        }


def _lost(work: Work) -> int:
    return work.host.standing.losses.total()


def _left(cycles: Cycles, folder: str) -> Row:
    late_s = max(cycles.late_s, default=float("nan"))
    left, wrong = session_of(folder), list[str]()
    if cycles.failed or not cycles.late_s:
        wrong.append(f"cycles ended: {cycles.failed}")
    if late_s > 1.0:
        wrong.append(f"a cycle was {late_s:.1f} s later than its deadline")
    if left or Path(folder).exists():
        wrong.append(f"left behind: {left} {folder}")
    return {
        "cycles": len(cycles.late_s),
        "latest_s": round(late_s, 2),
        "deadline_s": cycles.deadline_s,
        "wrong": "; ".join(wrong),
    }


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kills", "losses"))
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--batch", type=int, default=load_fits.BATCH)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--faults", default=",".join((*LOSSES, MEMORY)))
    given = parser.parse_args()
    if given.what == "kills":
        print(json.dumps(kills(given.minutes, given.every, given.cpus, given.batch, given.days)))  # noqa: T201
    else:
        for row in losses(given.faults.split(",")):
            print(json.dumps(row), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
