"""CPU time of an all-reduce over gloo: `python -m tests.agents.hook_cost 1` with the recorder, 0 without."""

import os
import socket
import sys
import tempfile
import time
from contextlib import suppress

import torch
from torch import distributed

OPERATIONS, PARTS = 10_000, 7
"""A part lasts longer than the recorder's thread sleeps, so that its work counts in each."""


def main(*, recorded: bool) -> None:
    path = tempfile.mkdtemp(dir="/tmp") + "/s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as heard:
        heard.bind(path)
        if recorded:
            from tonnage import torch_recorder

            if not torch_recorder.start(path):
                raise SystemExit("this torch has no hooks")
        distributed.init_process_group("gloo", init_method=f"file://{path}-meet", rank=0, world_size=1)
        tensor, best_us = torch.zeros(1000), float("inf")
        for _ in range(PARTS):
            began_s = time.process_time()
            for _ in range(OPERATIONS):
                distributed.all_reduce(tensor)
            best_us = min(best_us, (time.process_time() - began_s) / OPERATIONS * 1e6)
            with suppress(BlockingIOError):
                while heard.recv(1 << 16):
                    pass
    sys.stdout.write(f"{best_us:.2f}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(recorded=sys.argv[1] == "1")
