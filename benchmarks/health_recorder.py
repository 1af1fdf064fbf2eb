"""Health: what the recorder costs a training job, in CPU time per operation."""

from time import process_time

import click

from benchmarks.arguments import write_lines
from tonnage.recorder import RING, Recorder
from tonnage.records import Op

ROUNDS = 20


@click.command(context_settings={"show_default": True})
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
def main(json_to: str | None) -> None:
    """Record operations without a collective library around them; the wrapper's own cost is not in it."""
    recorder = Recorder(lambda _: None, rank=0)
    record_us, send_us = [], []
    for _ in range(ROUNDS):
        started_s = process_time()
        for _ in range(RING):
            recorder.exit(recorder.enter(0, Op.ALL_REDUCE, 1 << 20))
        recorded_s = process_time()
        recorder.flush()
        record_us.append((recorded_s - started_s) / RING * 1e6)
        send_us.append((process_time() - recorded_s) / RING * 1e6)
    record = {
        "in_the_jobs_thread_us": round(sorted(record_us)[ROUNDS // 2], 2),
        "in_the_recorders_thread_us": round(sorted(send_us)[ROUNDS // 2], 2),
        "share_at_100_per_s": round((sorted(record_us)[ROUNDS // 2] + sorted(send_us)[ROUNDS // 2]) * 1e-4, 6),
    }
    write_lines(json_to or "-", [record])


if __name__ == "__main__":
    main()
