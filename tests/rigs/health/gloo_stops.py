"""Ranks of small jobs of real torch over gloo that stop in chosen ways, and dump what its flight recorder has.

`python gloo_stops.py KIND RANK FOLDER` is one of four ranks; `gloo_dumps.tar.xz` holds what
torch 2.8.0, 2.11.0 and 2.15.0 wrote; paths in it were changed.
"""

import os
import sys
import time
from pathlib import Path

RANKS = 4
KINDS = tuple(
    "absent absent-pair barrier dtype ended gather killed operation order queue recv recv-chain send size".split()  # noqa: SIM905
)


def stop(kind: str, rank: int, folder: Path) -> None:
    """Five steps in order, and then the stop."""
    import torch
    from torch import distributed as dist
    from torch._C import _distributed_c10d as c10d

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tensor = torch.ones(1000)
    for _ in range(5):
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, group=pairs[rank // 2])
        dist.send(tensor, rank + 1) if rank % 2 == 0 else dist.recv(tensor, rank - 1)
    pair, works = pairs[rank // 2], []

    def reduce(of: torch.Tensor = tensor, **more: object) -> None:
        works.append(dist.all_reduce(of, async_op=True, **more))

    odd = {"absent": 2, "gather": 2, "killed": 2, "queue": 2, "operation": 1, "size": 1, "dtype": 1, "barrier": 3}.get(
        kind
    )
    if kind == "killed" and rank == odd:
        os._exit(1)
    if kind in ("absent", "killed", "queue") and rank != odd:
        time.sleep(0.5)
        for _ in range(4 if kind == "queue" else 1):
            reduce()
    elif kind == "gather" and rank != odd:
        works.append(dist.all_gather([torch.ones(1000) for _ in range(RANKS)], tensor, async_op=True))
    elif kind in ("operation", "size", "dtype", "barrier"):
        if rank != odd:
            reduce()
        elif kind == "operation":
            works.append(dist.broadcast(tensor, 0, async_op=True))
        elif kind == "barrier":
            works.append(dist.barrier(async_op=True))
        else:
            reduce(torch.ones(77) if kind == "size" else tensor.double())
    elif kind == "absent-pair" and rank != 3:
        reduce(group=pair)
        if rank < 2:
            works[-1].wait()
            reduce()
    elif kind == "order":
        reduce(**({"group": pair} if rank == 0 else {}))
    elif kind in ("recv", "recv-chain") and rank in ((1,) if kind == "recv" else (2, 3)):
        works.append(dist.irecv(tensor, rank - 1))
    elif kind == "send" and rank < 2:
        works.append(dist.isend(torch.ones(50_000_000), 1)) if rank == 0 else reduce()
    time.sleep(1.5)
    (folder / f"rank_{rank}.json").write_bytes(c10d._dump_fr_trace_json())
    (folder / "p").mkdir(exist_ok=True)
    (folder / "p" / f"trace_rank_{rank}").write_bytes(c10d._dump_fr_trace())
    time.sleep(3)  # the others dump, too, before connections break
    os._exit(0)


if __name__ == "__main__":
    stop(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
