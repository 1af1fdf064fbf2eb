"""Cluster that a verb works on: the options shared by all such verbs, and the connection made from them."""

import re
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from cli.inputs.options import Command, adding

if TYPE_CHECKING:  # half a second of imports that `--help` does not need
    from controller.kube.api_server import ApiServer, RequestListener
    from controller.kube.credentials import ApiAccess
    from controller.kube.discovery import Discovered

T = TypeVar("T")
Object = dict[str, Any]

DEFAULT_TIMEOUT_S = 30.0
COMPLETION_S = 1.5
"""Longest wait of a completion; a shell blocks meanwhile."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Cluster to connect to, the user to act as, and the namespace, as the options of a command line name them."""

    kubeconfig: str | None = None
    context: str | None = None
    user: str | None = None
    """User to impersonate, as `groups` and `uid`; None: nobody."""
    groups: tuple[str, ...] = ()
    uid: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    namespace: str | None = None
    """None: the namespace of the kubeconfig's context."""

    @property
    def named_by(self) -> str:
        """The option that names a cluster, such as `--context`; "" for none."""
        given = {"--context": self.context, "--kubeconfig": self.kubeconfig, "--as": self.user}
        return next((option for option, value in given.items() if value is not None), "")

    def credentials(self) -> "ApiAccess":
        """The same as the connection takes it."""
        from controller.kube.credentials import ApiAccess

        return ApiAccess(
            kubeconfig=self.kubeconfig or "",
            context=self.context or "",
            impersonate=self.user or "",
            impersonate_groups=self.groups,
            impersonate_uid=self.uid or "",
            request_timeout_s=self.timeout_s,
        )


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """Open connection, the resources that the server serves, and the namespace in effect."""

    connection: "ApiServer"
    discovered: "Discovered"
    namespace: str


Work = Callable[[LiveCluster], Coroutine[Any, Any, T]]


def on_cluster(access: ClusterAccess, work: Work[T], within_s: float | None = None) -> T:
    """Connect, discover what the server serves, and return the result of `work`.

    within_s: time for all of it, seconds; None: each request has its own limit alone. Raises ConfigError,
    KubeReadError, KubeWriteError, TimeoutError.
    """
    import asyncio

    from controller.kube.connection import connect
    from controller.kube.discovery import discover

    async def run() -> T:
        async with (
            asyncio.timeout(within_s),
            await connect(access.credentials(), time.monotonic, _warnings()) as connection,
        ):
            served = await discover(connection)
            return await work(LiveCluster(connection, served, access.namespace or connection.namespace))

    return asyncio.run(run())


def _warnings() -> "RequestListener":
    """Listener that prints the API server's warnings."""
    from controller.kube.api_server import RequestListener

    class Printer(RequestListener):
        def warned(self, text: str) -> None:
            click.echo(f"Warning: {text}", err=True)

    return Printer()


def listed(access: ClusterAccess, plural: str, *, all_namespaces: bool = False) -> list[Object]:
    """Objects of a kind: of all namespaces, or of the one in effect. Raises as `on_cluster`."""
    from controller.kube import crud

    async def work(cluster: LiveCluster) -> list[Object]:
        path = cluster.discovered.named(plural).collection("" if all_namespaces else cluster.namespace)
        return await crud.list_all(cluster.connection, path)

    return on_cluster(access, work)


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(value: str | float) -> float:
    """Seconds of `30s`, `1m30s`, `500ms` or a bare number, as kubectl reads them. Raises click.BadParameter."""
    if isinstance(value, int | float) or re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise click.BadParameter(f"{value!r} is not a duration; write 30s, 1m30s or 500ms")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _completed(names: Callable[[click.Context, str], list[str]]) -> Callable[..., list[CompletionItem]]:
    """Completion that offers nothing when the cluster does not answer: a Tab has no place for an error."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: list[str] = []
        with suppress(Exception):
            found = names(ctx, incomplete)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


def _ask(ctx: click.Context, work: Work[list[str]]) -> list[str]:
    """Names from the cluster that the options typed so far select, within COMPLETION_S in total."""
    given = {name: ctx.params.get(name) for name in ("kubeconfig", "context", "user", "uid", "namespace")}
    groups = tuple(ctx.params.get("groups") or ())
    return on_cluster(ClusterAccess(**given, groups=groups, timeout_s=COMPLETION_S), work, COMPLETION_S)


def _names_at(path: str) -> Callable[[click.Context, str], list[str]]:
    """Completion by the names of all objects of a collection."""

    async def names(cluster: LiveCluster) -> list[str]:
        from controller.kube import crud

        return [each["metadata"]["name"] for each in await crud.list_all(cluster.connection, path)]

    return lambda ctx, _: _ask(ctx, names)


def _contexts(ctx: click.Context, _: str) -> list[str]:
    from controller.kube.credentials import context_names

    return context_names(ctx.params.get("kubeconfig") or "")


def _kinds_and_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Kinds for the first word (Tonnage's first), `KIND/NAME` when it has a slash, object names for later words."""
    from controller.api.labels import CATEGORY
    from controller.kube import crud

    words = ctx.params.get("what") or ()
    kind = incomplete.partition("/")[0] if "/" in incomplete else (words[0] if words else "")

    async def found(cluster: LiveCluster) -> list[str]:
        served = cluster.discovered
        if not kind:
            return list(dict.fromkeys([r.plural for r in served.in_category(CATEGORY)] + list(served.words())))
        resource = served.named(kind.split(",")[-1])
        objects = await crud.list_all(cluster.connection, resource.collection(cluster.namespace))
        prefix = f"{kind}/" if "/" in incomplete else ""
        return [prefix + each["metadata"]["name"] for each in objects]

    return _ask(ctx, found)


complete_kinds_and_names = _completed(_kinds_and_names)
complete_nodes = _completed(_names_at("/api/v1/nodes"))

_ACCESS = adding(
    click.option("--context", metavar="NAME", help="Context of the kubeconfig.", shell_complete=_completed(_contexts)),
    click.option("--kubeconfig", metavar="FILE", help="Kubeconfig to use. [default: KUBECONFIG or ~/.kube/config]"),
    click.option("--as", "user", metavar="USER", help="Act as this user or system:serviceaccount:NAMESPACE:NAME."),
    click.option(
        "--as-group", "groups", metavar="GROUP", multiple=True, help="Group to act in; needs --as; may be repeated."
    ),
    click.option("--as-uid", "uid", metavar="UID", help="UID to act with; needs --as."),
    click.option(
        "--request-timeout",
        "timeout_s",
        type=duration,
        default=DEFAULT_TIMEOUT_S,
        metavar="DURATION",
        help="Limit of each request, such as 5s; 0: no limit. Watches have none. [default: 30s]",
    ),
)


def access_options(command: Command) -> Callable[..., Any]:
    """Adds `--context`, `--kubeconfig`, `--as`, `--as-group`, `--as-uid` and `--request-timeout`, as kubectl has them.

    The command receives `access`, a ClusterAccess, instead of them and of `-n`.
    """

    @wraps(command)
    def with_access(*args: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in ClusterAccess.__dataclass_fields__ if name in options}
        access = ClusterAccess(**given)
        if access.user is None and (access.groups or access.uid):
            raise click.UsageError("--as-group and --as-uid need --as")
        return command(*args, access=access, **options)

    return _ACCESS(with_access)


def cluster_options(command: Command) -> Callable[..., Any]:
    """Adds `access_options` and `-n`."""
    complete = _completed(_names_at("/api/v1/namespaces"))
    words = "Namespace. [default: that of the context]"
    namespace = click.option("-n", "--namespace", metavar="NAME", help=words, shell_complete=complete)
    return namespace(access_options(command))


dry_run_option = click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    show_default=True,
    help="client: show what would be sent. server: have the server check it without storing anything.",
)
DRY_RUN_TAIL = {"none": "", "client": " (dry run)", "server": " (server dry run)"}
"""What a line about a change ends in, by the value of `--dry-run`."""
