"""`python -m tests.chaos`: plays random compositions of faults by seed, in memory or on a real server, and judges them.

    python -m tests.chaos --seconds 3600             both, for as long
    python -m tests.chaos --count 10000 --jobs 2     so many in memory
    python -m tests.chaos --count 300 --on-server    so many on a real control plane
    python -m tests.chaos --replay FILE              a history that was kept
    python -m tests.chaos --bugs                     how soon each seeded bug is found

What fails is shrunk to the fewest steps that still fail, and kept in tests/chaos/kept.
"""

import argparse
import gc
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from tests.chaos.compositions import KEPT, Composition, composition_from, drawn, keep, shrunk
from tests.chaos.seeded_bugs import put_in, seeded_bugs

WORTH_TELLING_S = 60.0


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    options.add_argument("--seconds", type=float, default=0.0, help="half of it in memory, half on a real server")
    options.add_argument("--count", type=int, default=0, help="compositions")
    options.add_argument("--first", type=int, default=0, metavar="SEED")
    options.add_argument("--jobs", type=int, default=1, help="processes, in memory")
    options.add_argument("--on-server", action="store_true")
    options.add_argument("--replay", type=Path, metavar="FILE")
    options.add_argument("--bugs", action="store_true")
    options.add_argument("--bug", type=int, help="with this seeded bug, until it is found", metavar="NUMBER")
    options.add_argument("--keep", type=Path, default=KEPT, metavar="FOLDER", help="where failures are kept")
    given = options.parse_args()
    if given.bugs:
        return every_bug()
    if given.bug is not None:
        put_in(seeded_bugs()[given.bug])
        return until_found(given.count or 5000)
    if given.replay:
        return replay(given.replay, on_server=given.on_server)
    failed = 0
    if not given.on_server:
        failed += in_memory(given.first, given.count, given.seconds / 2, given.jobs, given.keep)
    if given.on_server or given.seconds:
        from tests.chaos.on_server import on_server

        failed += on_server(given.first, given.count, given.seconds / (1 if given.on_server else 2), given.keep, say)
    return int(failed > 0)


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201 - a program's answer


def in_memory(first: int, count: int, seconds: float, jobs: int, folder: Path) -> int:
    """Plays compositions of these seeds on; how many failed."""
    began_s, told_s, played, failed, done = time.monotonic(), time.monotonic(), 0, 0, Counter[str]()
    used_s, writes = 0.0, 0
    seeds = range(first, first + count) if count else range(first, sys.maxsize)
    with get_context("fork").Pool(jobs, _ready) as pool:
        for seed, found, injected, took_s, wrote in pool.imap_unordered(_one, _while(seeds, began_s, seconds), 4):
            played, used_s, writes = played + 1, used_s + took_s, writes + wrote
            done.update(injected)
            if found:
                failed += 1
                say(f"seed {seed} FAILED: {'; '.join(found[:3])}")
                if failed <= 5:
                    say(f"  kept as {_kept(drawn(seed), found, folder)}")
            if time.monotonic() - told_s > WORTH_TELLING_S:
                told_s = time.monotonic()
                say(f"{played} compositions, {failed} failed, {told_s - began_s:.0f} s")
    took_s = time.monotonic() - began_s
    say(f"in memory: {played} compositions from seed {first}, {failed} failed, {writes} writes, {took_s:.0f} s "
        f"({used_s / max(1, played):.3f} CPU s each)")  # fmt: skip
    say(f"  {', '.join(f'{n} {what}' for what, n in done.most_common())}")
    return failed


def _while(seeds: range, began_s: float, seconds: float) -> Iterator[int]:
    for seed in seeds:
        if seconds and time.monotonic() - began_s > seconds:
            return
        yield seed


def _ready() -> None:
    import tests.chaos.in_memory  # noqa: F401 - so that the first composition takes no longer than the others

    gc.collect()
    gc.freeze()


def _one(seed: int) -> tuple[int, tuple[str, ...], dict[str, int], float, int]:
    from tests.chaos.in_memory import played

    began_s = time.process_time()
    verdict = played(drawn(seed))
    return seed, verdict.violations, dict(verdict.injected), time.process_time() - began_s, verdict.writes


def _kept(composition: Composition, found: tuple[str, ...], folder: Path) -> Path:
    from tests.chaos.in_memory import played

    kind = found[0].partition(":")[0]
    small = shrunk(composition, lambda each: any(v.startswith(kind) for v in played(each).violations))
    return keep(f"seed-{composition.seed}", small, played(small).violations, folder)


def replay(file: Path, *, on_server: bool) -> int:
    composition = composition_from(file.read_text(encoding="utf-8"))
    if on_server:
        from tests.chaos.on_server import played_on_server

        found, digest = played_on_server(composition).violations, "none on a real server"
    else:
        from tests.chaos.in_memory import played

        verdict = played(composition)
        found, digest = verdict.violations, verdict.digest
    say("\n".join(found) or f"nothing wrong; digest {digest}")
    return int(bool(found))


def until_found(most: int) -> int:
    """Plays until a composition fails; 0 when one did."""
    from tests.chaos.in_memory import played

    _ready()
    began_s = time.monotonic()
    for seed in range(most):
        if found := played(drawn(seed)).violations:
            say(f"found after {seed + 1} compositions, {time.monotonic() - began_s:.1f} s: {found[0]}")
            return 0
    say(f"NOT FOUND in {most} compositions, {time.monotonic() - began_s:.1f} s")
    return 1


def every_bug() -> int:
    """A process for each: what was imported once stays imported."""
    began_s, missed = time.monotonic(), 0
    for number, bug in enumerate(seeded_bugs()):
        command = [sys.executable, "-m", "tests.chaos", "--bug", str(number)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
        missed += done.returncode != 0
        say(f"{bug.name} | {done.stdout.strip() or done.stderr[-300:]}")
    say(f"{len(seeded_bugs()) - missed} of {len(seeded_bugs())} found in {time.monotonic() - began_s:.0f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
