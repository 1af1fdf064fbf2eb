"""One rank of a real training job: reduces with the others in steps, saves shards, goes on from the last complete save.

Run as a process of its own, by `tests.controlplane.training`, with its parameters as JSON in the first argument. The
sums go through gloo (`torch.distributed`) or, where torch is not installed, through sockets of the standard library.
"""

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tonnage.recorder import Recorder
from tonnage.records import Op, Phase, Role

LENGTH = 64
"""Parameters of the model."""
SAVE_EVERY = 10
"""Steps between two checkpoints."""
STEP_S = 0.03
_SUMS = struct.Struct(f"<{LENGTH}d")

Reduce = Callable[[list[float]], list[float]]


def gradient(step: int, rank: int) -> list[float]:
    """Whole numbers, so that sums are exact in any order."""
    return [float((step * (rank + 3) + index * 7) % 11) for index in range(LENGTH)]


def main(given: dict[str, object]) -> None:
    rank, ranks, folder = int(str(given["rank"])), int(str(given["ranks"])), Path(str(given["saves"]))
    connect = by_gloo if given["backend"] == "gloo" else by_sockets
    reduced = connect(rank, ranks, int(str(given["port"])))
    recorder = Recorder.started(rank=rank, socket_path=str(given["socket"]))
    recorder.place(stage=0, replica=rank, ranks=ranks)
    group = recorder.join("dp", list(range(ranks)), Role.DATA)
    saved, weights = restored(folder, ranks)
    Path(str(given["log"])).write_text(json.dumps({"from": saved}), encoding="utf-8")
    step = saved
    while True:
        step += 1
        recorder.step(step)
        time.sleep(STEP_S)
        is_save = step % SAVE_EVERY == 0
        while is_save and Path(str(given["hang"])).exists():
            time.sleep(0.05)  # a device that does not answer: the process is there and enters nothing more
        if is_save:
            with recorder.phase(Phase.CHECKPOINT):
                save(folder, step - 1, rank, weights[rank::ranks])
        token = recorder.enter(group, Op.ALL_REDUCE, _SUMS.size)
        total = reduced(gradient(step, rank))
        recorder.exit(token)
        weights = [weight + each for weight, each in zip(weights, total, strict=True)]
        if is_save and rank == 0:  # all have taken part in the sum, so all have saved
            (folder / f"{step - 1}.complete").touch()


def save(folder: Path, step: int, rank: int, part: list[float]) -> None:
    made = folder / f"{step}.{rank}.new"
    made.write_text(json.dumps(part), encoding="utf-8")
    made.replace(folder / f"{step}.{rank}")


def last_complete(folder: Path) -> int:
    """Step of the newest checkpoint of which every rank's part is there; 0 without any."""
    return max((int(each.stem) for each in folder.glob("*.complete")), default=0)


def restored(folder: Path, ranks: int) -> tuple[int, list[float]]:
    """Step and parameters to go on from."""
    step, weights = last_complete(folder), [0.0] * LENGTH
    if step:
        for rank in range(ranks):
            weights[rank::ranks] = json.loads((folder / f"{step}.{rank}").read_text(encoding="utf-8"))
    return step, weights


def by_gloo(rank: int, ranks: int, port: int) -> Reduce:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)

    def reduced(values: list[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    return reduced


def by_sockets(rank: int, ranks: int, port: int) -> Reduce:
    """Rank 0 adds up; the others send it their values and wait for the sums."""
    time.sleep(1.1)  # an agent hears no process younger than a second; importing torch takes longer than that
    if rank:
        return _asked(_connected(port))
    server = socket.create_server(("127.0.0.1", port))
    others = [server.accept()[0] for _ in range(ranks - 1)]

    def reduced(values: list[float]) -> list[float]:
        for other in others:
            values = [one + two for one, two in zip(values, _received(other), strict=True)]
        for other in others:
            other.sendall(_SUMS.pack(*values))
        return values

    return reduced


def _connected(port: int) -> socket.socket:
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port))
        time.sleep(0.05)


def _asked(line: socket.socket) -> Reduce:
    def reduced(values: list[float]) -> list[float]:
        line.sendall(_SUMS.pack(*values))
        return list(_received(line))

    return reduced


def _received(line: socket.socket) -> tuple[float, ...]:
    content = b""
    while len(content) < _SUMS.size:
        part = line.recv(_SUMS.size - len(content))
        if not part:
            threading.Event().wait()  # a peer is gone: its pod's end will end this process as well
        content += part
    return _SUMS.unpack(content)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
