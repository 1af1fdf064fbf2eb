"""`python -m tests.controlplane.failing_operator --config FILE`: the operator with a bug that one service sets off."""

import signal
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event

import structlog

from cluster.snapshot import Snapshot
from controller.api.model_service import KIND as SERVICE, ModelService
from controller.objects.read import Read
from controller.process.cluster import PRODUCT
from controller.process.main import Operator, operate
from controller.report.logs import configure_logs
from controller.settings import read_settings


def broken(snapshot: Snapshot, reads: tuple[Read[ModelService], ...]) -> Snapshot:
    """Fact that raises where there is a service, with its template, as its owner wrote it, in a local variable."""
    templates = [each.object.spec.template for each in reads]
    if templates:
        raise TypeError("a bug")
    return snapshot


def main(config: Path) -> None:
    """Runs until SIGTERM."""
    settings = read_settings(config)
    configure_logs(settings.log_format, settings.log_level)
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def on_start(operator: Operator) -> None:
        ports = {"probe_port": operator.probe_port, "metrics_port": operator.metrics_port}
        structlog.get_logger("operator").info("started", **ports)

    operate(settings, stop, on_start, replace(PRODUCT, facts=(*PRODUCT.facts, (SERVICE, broken))))


if __name__ == "__main__":
    main(Path(sys.argv[-1]))
