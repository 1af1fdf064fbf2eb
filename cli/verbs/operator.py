"""`tonnage operator`: runs the loop against a cluster."""

import signal
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import click
import structlog

from controller.process.main import Operator, operate
from controller.report.logs import configure_logs
from controller.settings import as_yaml, read_settings


@click.group()
def operator() -> None:
    """Run Tonnage as an operator on a cluster."""


_FILE = click.option(
    "--config", type=click.Path(path_type=Path), help="Settings, YAML. TONNAGE_… variables go before it."
)


@operator.command()
@_FILE
@click.option("--kubeconfig", help="File of the cluster to run on; else the pod's service account, or KUBECONFIG.")
@click.option("--context", help="Context of the kubeconfig.")
def run(config: Path | None, **given: str | None) -> None:
    """Watch the cluster, take the Lease, and plan, bind, scale and report until SIGTERM.

    Several may run: one leads, the others stand by. The settings in force are logged at the start.
    """
    told: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = read_settings(config, **told)
    configure_logs(settings.log_format, settings.log_level)
    log = structlog.get_logger("operator")
    stop = Event()

    def end(number: int, _: FrameType | None) -> None:
        log.info("ending", signal=signal.Signals(number).name)
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    log.info("starting", settings=settings.model_dump(mode="json"))

    def on_start(operator: Operator) -> None:
        log.info(
            "started",
            probe_port=operator.probe_port,
            metrics_port=operator.metrics_port,
            power_port=operator.ports.get("power"),
        )

    operate(settings, stop, on_start)
    log.info("ended")


@operator.command()
@_FILE
def settings(config: Path | None) -> None:
    """Print the settings that `run` would use, as a file that says the same."""
    click.echo(as_yaml(read_settings(config)), nl=False)
