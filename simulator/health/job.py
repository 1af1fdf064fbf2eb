"""Simulated training job: its shape, its nodes, and what its steps cost without a fault."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import IntArray
from health.records.frames import Records
from simulator.health.transcript import introductions, members, places
from tonnage import records
from tonnage.records import Role

NUMBERS = {int(Role.TENSOR): 0, int(Role.DATA): 1, int(Role.PIPELINE): 2, int(Role.WORLD): 3}


@dataclass(frozen=True, slots=True)
class Job:
    """Job of tensor * data * pipeline ranks; ranks count tensor first, then data, then pipeline."""

    tensor: int
    data: int
    pipeline: int
    gpus_per_node: int
    microbatches: int = 2
    pass_s: float = 0.05
    """Computing time of a forward or backward pass of one microbatch."""
    tensor_s: float = 0.001
    """Transfer time of one all-reduce within a tensor group."""
    pipeline_s: float = 0.002
    data_s: float = 0.03
    world: bool = True
    """Whether each step ends with a small all-reduce over all ranks."""
    blocking_sends: bool = False
    """Whether a send ends with its receive, as NCCL's does, instead of at once."""
    compute_noise: float = 0.015
    """Standard deviation of a pass's logarithm."""
    transfer_noise: float = 0.1
    static_noise: float = 0.01
    """Standard deviation between ranks that stays."""
    stall_s: float = 0.0
    """Longest of the stalls of single ranks that are normal for this job, one in ten steps."""
    stage_load: tuple[float, ...] = ()
    """Computing time of each stage over the others'."""

    @property
    def ranks(self) -> int:
        return self.tensor * self.data * self.pipeline

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.pipeline, self.data, self.tensor)

    @property
    def numbers(self) -> IntArray:
        """Ranks in the shape (pipeline, data, tensor)."""
        return np.arange(self.ranks).reshape(self.shape)

    @property
    def node(self) -> IntArray:
        return np.asarray(np.arange(self.ranks) // self.gpus_per_node)

    @property
    def rings_cross(self) -> bool:
        """Whether data-parallel groups are on several nodes."""
        return self.data * self.tensor > self.gpus_per_node

    @property
    def nic(self) -> IntArray:
        """One NIC per GPU."""
        return np.arange(self.ranks)

    def introductions(self) -> Records:
        numbers = self.numbers
        replica = np.broadcast_to(np.arange(self.data)[None, :, None], self.shape).ravel()
        stage = np.broadcast_to(np.arange(self.pipeline)[:, None, None], self.shape).ravel()
        groups: list[tuple[int, int, IntArray]] = []
        for role, axis, used in (
            (Role.TENSOR, 2, self.tensor > 1),
            (Role.DATA, 1, self.data > 1),
            (Role.PIPELINE, 0, self.pipeline > 1),
        ):
            if used:
                for ranks in np.moveaxis(numbers, axis, -1).reshape(-1, self.shape[axis]):
                    groups.append((records.group_key(role.name, ranks.tolist()), int(role), ranks))  # noqa: PERF401
        if self.world:
            groups.append((records.group_key("WORLD", (self.ranks,)), int(Role.WORLD), numbers.ravel()))
        rank, rows = members(groups, NUMBERS)
        placed, place_rows = places(stage, replica)
        return introductions(np.concatenate([rank, placed]), np.concatenate([rows, place_rows]))
