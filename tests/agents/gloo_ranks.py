"""Ranks of a small training job over gloo, each a process; needs torch and the recorder, nothing else of Tonnage.

    python -m tests.agents.gloo_ranks '{"ranks": 8, ...}'

One process imports torch and forks the others. Each trains a small model with DistributedDataParallel, which knows
nothing of the recorder, and writes the digest of its parameters at the end.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main(given: dict[str, Any]) -> None:
    import torch
    import torch._dynamo  # the optimizer's first step imports it: once for all ranks, not once in each
    from torch.nn import parallel  # noqa: F401 - likewise

    torch.set_num_threads(1)
    folder = Path(given["folder"])
    children = []
    for rank in range(given["ranks"]):
        child = os.fork()
        if child == 0:
            try:
                train(given, rank, folder)
            finally:
                os._exit(0)
        children.append(child)
    (folder / "pids").write_text(json.dumps(children), encoding="utf-8")
    for child in children:
        os.waitpid(child, 0)


def train(given: dict[str, Any], rank: int, folder: Path) -> None:
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    if given["socket"]:
        from tonnage import torch_recorder

        torch_recorder.start(f"{given['socket']}{rank}")
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=given["ranks"]
    )
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    step = 0
    while step < given["steps"]:
        step += 1
        time.sleep(given["step_s"])
        slow, hang = (folder / f"{word}-{rank}" for word in ("slow", "hang"))
        if slow.exists():
            time.sleep(float(slow.read_text()))
        while hang.exists():
            time.sleep(0.05)
        data = torch.randn(16, 64, generator=torch.Generator().manual_seed(step * 1000 + rank))
        wrapped(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            (folder / "step").write_text(str(step))
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    (folder / f"digest-{rank}").write_text(hashlib.sha256(weights).hexdigest(), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
