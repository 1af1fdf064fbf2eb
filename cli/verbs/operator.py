"""`tonnage operator`: runs the control loop on a cluster."""

import signal
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import click
import structlog

from cli.printing.whole_help import Group
from controller.process.main import Operator, operate
from controller.report.logs import configure_logs
from controller.settings import as_yaml, read_settings


@click.group(cls=Group)
def operator() -> None:
    """Run Tonnage as an operator on a cluster."""


_FILE = click.option(
    "--config", type=click.Path(path_type=Path), help="YAML file with settings. TONNAGE_… variables take precedence."
)


@operator.command()
@_FILE
@click.option("--kubeconfig", help="Kubeconfig to use. [default: the pod's service account, otherwise KUBECONFIG]")
@click.option("--context", help="Context of the kubeconfig.")
def run(config: Path | None, **given: str | None) -> None:
    """Watch the cluster, acquire the Lease, then plan, bind, scale and report until SIGTERM.

    Several replicas may run: one leads, the others stand by. The effective settings are logged at the start.
    """
    overrides: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = read_settings(config, **overrides)
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
    """Print the settings that `run` would use, as a settings file."""
    click.echo(as_yaml(read_settings(config)), nl=False)
