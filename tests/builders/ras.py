"""Answers of NCCL's RAS service, in the form that `src/ras/client_support.cc` of NCCL 2.28 writes."""

from collections.abc import Mapping, Sequence
from typing import Any

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def _member(rank: int, number: int, per_host: int) -> dict[str, Any]:
    return {
        "rank": number, "host": f"10.0.0.{rank // per_host}", "pid": 100 + rank, "cuda_dev": rank % per_host,
        "nvml_dev": rank % per_host,
    }  # fmt: skip


def communicator(
    name: str,
    ranks: Sequence[int],
    launched: Mapping[int, Mapping[str, int]],
    *,
    missing: Mapping[int, Mapping[str, bool]] | None = None,
    errors: Mapping[int, int] | None = None,
    per_host: int = 2,
) -> dict[str, Any]:
    """launched: counts beyond 60 all-reduces, by rank of the job. missing: status of those that are."""
    missing, errors = missing or {}, errors or {}
    at = {rank: number for number, rank in enumerate(ranks)}
    there = [rank for rank in ranks if rank not in missing]
    return {
        "hash": name, "secondary_hash": "0x1:0x2", "size": len(ranks), "ranks_count": len(there),
        "missing_ranks_count": len(missing),
        "ranks": [
            {
                **_member(rank, at[rank], per_host),
                "status": {
                    "init_state": 0, "async_error": errors.get(rank, 0), "finalize_called": False,
                    "destroy_flag": False, "abort_flag": False,
                },
                "collective_counts": {
                    op: 60 * (op == "AllReduce") + launched.get(rank, {}).get(op, 0) for op in FUNCTIONS
                },
            }
            for rank in there
        ],
        "missing_ranks": [{**_member(rank, at[rank], per_host), "status": dict(missing[rank])} for rank in missing],
    }  # fmt: skip


def answer(*communicators: Mapping[str, Any], at: str = "2026-11-01 10:00:00") -> dict[str, Any]:
    return {
        "nccl_version": "2.28.3", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": at,
        "communicators_count": len(communicators), "communicators": list(communicators),
        "ras": {"collection_time_sec": 0.002, "timeouts_count": 0},
    }  # fmt: skip


def reduced(*ranks: int, more: int = 1) -> dict[int, dict[str, int]]:
    return {rank: {"AllReduce": more} for rank in ranks}
