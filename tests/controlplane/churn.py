"""Steady arrivals and departures of pods, written by the test's own process."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from controller.kube.connection import connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import KubeWriteError

PAUSE_S = 0.5
ALIVE = 10
"""So many are there at a time; the oldest goes when another comes."""


@contextmanager
def churn(kubeconfig: Path, path: str, made: Callable[[int], dict[str, Any]]) -> Iterator[None]:
    """Creates a pod every half second and deletes the one of five seconds ago, while the block runs.

    path: of the pods of a namespace. made: the pod with this number.
    """
    over = Event()

    async def work() -> None:
        alive: deque[str] = deque()
        async with await connect(ApiAccess(kubeconfig=str(kubeconfig)), time.monotonic) as connection:
            number = 0
            while not over.is_set():
                pod, number = made(number), number + 1
                await connection.write("POST", path, pod)
                alive.append(pod["metadata"]["name"])
                if len(alive) > ALIVE:
                    await _delete(connection, f"{path}/{alive.popleft()}")
                await asyncio.sleep(PAUSE_S)
            for name in alive:
                await _delete(connection, f"{path}/{name}")

    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work())
        except Exception as error:  # noqa: BLE001 - raised again in the test's thread
            failed.append(error)

    thread = Thread(target=run, name="churn", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
    assert not failed, failed


async def _delete(connection: Any, path: str) -> None:
    try:
        await connection.write("DELETE", path, {"gracePeriodSeconds": 0})
    except KubeWriteError as error:
        if error.refusal.status != 404:  # evicted meanwhile
            raise
