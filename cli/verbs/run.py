"""`tonnage run`: runs a command as a tool call with memory of its own, inside a pod that isolation covers."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

import click

from cli.inputs.cluster import duration
from isolation.admission import bytes_from
from tonnage import sandbox


def memory(value: str) -> str:
    """Memory such as 2Gi or 512Mi. Raises click.BadParameter."""
    if bytes_from(value) is None:
        raise click.BadParameter(f"{value!r} is no amount of memory: write 2Gi or 512Mi")
    return value


def open_descriptor(_: click.Context, __: click.Parameter, number: int | None) -> int | None:
    """A descriptor that the caller has opened: another would be given to the next file, or to the agent's socket."""
    if number is None:
        return None
    try:
        is_from_caller = os.get_inheritable(number)  # what Python opens is not inheritable
    except OSError:
        is_from_caller = False
    if not is_from_caller:
        raise click.BadParameter(f"{number} is not open: redirect it, as in {number}>verdict.json")
    return number


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=f"Exit status: the command's own, or 128 + number for a signal; {sandbox.REFUSED} if it was not started; "
    "2 wrong usage.",
)
@click.option(
    "--mem-hint",
    "mem",
    type=memory,
    metavar="MEMORY",
    envvar=sandbox.MEM_VARIABLE,
    help=f"Most memory that the command will hold; learned if omitted. [env: {sandbox.MEM_VARIABLE}]",
)
@click.option(
    "--wait", "wait_s", type=duration, metavar="DURATION", help="Longest time to wait for that memory; 0s: not at all."
)
@click.option(
    "--json-fd",
    type=click.IntRange(1, 1023),
    callback=open_descriptor,
    help="Descriptor to which the verdict is written as JSON.",
)
@click.option("--end-all", is_flag=True, help="End what the command left running in the background.")
@click.option("--require", is_flag=True, help="Do not run without a node agent.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    mem: str | None,
    wait_s: float | None,
    json_fd: int | None,
    command: tuple[str, ...],
    *,
    end_all: bool,
    require: bool,
) -> None:
    """Run COMMAND as a tool call: with a lease on memory, and a verdict that says why it ended.

    Where no node agent answers, the command runs plainly, and a line on standard error says so.
    """
    about = sandbox.Tool(mem, wait_s, _say, require)
    call = about.start(command)

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            call.process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGHUP, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the command as well
    verdict = call.verdict()
    if end_all:
        call.end()
    if json_fd is not None:
        with suppress(OSError):
            os.write(json_fd, verdict.as_json().encode() + b"\n")
    if words := verdict.words():
        click.echo(f"tonnage: {words}", err=True)
    sys.stdout.flush()
    sys.exit(sandbox.REFUSED if verdict.exit_code is None else verdict.exit_code)


def _say(state: sandbox.State) -> None:
    """Tells people, on standard error, why the command does not go on."""
    if state["state"] in ("queued", "frozen"):
        click.echo(f"tonnage: {state['state']} ({state['reason']})", err=True)
