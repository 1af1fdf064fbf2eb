"""The cluster that a verb speaks to: the options that every such verb has, and the connection they stand for."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:  # half a second of imports that `--help` does not wait for
    from controller.kube.connection import Connection
    from controller.kube.credentials import Access
    from controller.kube.discovery import Discovered

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_TIMEOUT_S = 30.0
COMPLETION_S = 1.5
"""Nobody waits longer for a Tab."""
INTERRUPTED = 130
"""128 + SIGINT: how a watch that was ended by Ctrl-C reports it, as shells do."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster, as whom, and where in it."""

    access: "Access"
    namespace: str | None = None
    """None: the one of the context."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A connection, what the server serves, and the namespace that is meant."""

    connection: "Connection"
    discovered: "Discovered"
    namespace: str


Work = Callable[[Cluster], Awaitable[T]]


def on_cluster(target: Target, work: Work[T]) -> T:
    """Connect, learn what the server serves, do the work. Raises ConfigError, KubeReadError, KubeWriteError."""
    from controller.kube.connection import connect
    from controller.kube.discovery import discover

    async def run() -> T:
        async with await connect(target.access, time.monotonic, on_warning=_warn) as connection:
            namespace = target.namespace or connection.namespace
            return await work(Cluster(connection, await discover(connection), namespace))

    return asyncio.run(run())


def _warn(words: str) -> None:
    click.echo(f"Warning: {words}", err=True)


@dataclass(frozen=True, slots=True)
class Impersonated:
    """Who one asks to be taken for: `--as` and its companions."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""


def impersonated(user: str | None, groups: Sequence[str], uid: str | None) -> Impersonated | None:
    """None: oneself. Raises click.UsageError."""
    if user is None and (groups or uid):
        raise click.UsageError("--as-group and --as-uid say more of a user that --as names")
    return None if user is None else Impersonated(user, tuple(groups), uid or "")


def target_from(
    kubeconfig: str | None,
    context: str | None,
    user: Impersonated | None,
    timeout_s: float,
    namespace: str | None = None,
) -> Target:
    from controller.kube.credentials import Access

    who = user or Impersonated("")
    access = Access(
        kubeconfig=kubeconfig or "",
        context=context or "",
        impersonate=who.user,
        impersonate_groups=who.groups,
        impersonate_uid=who.uid,
        request_timeout_s=timeout_s,
    )
    return Target(access, namespace)


def duration(value: str | float) -> float:
    """`30s`, `1m30s`, `500ms`, or a bare number of seconds, as kubectl reads them. Raises click.BadParameter."""
    try:
        return float(value) if isinstance(value, int | float) else seconds_from(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no length of time; write 30s, 1m30s or 500ms") from None


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_from(text: str) -> float:
    """Raises ValueError for what is no length of time."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _completed(names: Callable[[click.Context, str], list[str]]) -> Callable[..., list[CompletionItem]]:
    """A completion that stays silent when the cluster does not answer: there is nobody to tell."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: list[str] = []
        with suppress(Exception):
            found = names(ctx, incomplete)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


def ask(ctx: click.Context, work: Work[list[str]]) -> list[str]:
    """Names from the cluster that the options so far point at, within COMPLETION_S in all."""
    params = ctx.params
    who = impersonated(params.get("user"), params.get("groups") or (), params.get("uid"))
    target = target_from(params.get("kubeconfig"), params.get("context"), who, COMPLETION_S, params.get("namespace"))

    async def limited(cluster: Cluster) -> list[str]:
        async with asyncio.timeout(COMPLETION_S):
            return await work(cluster)

    return on_cluster(target, limited)


def _namespaces(ctx: click.Context, _: str) -> list[str]:
    from controller.kube import crud

    async def names(cluster: Cluster) -> list[str]:
        found = await crud.list_all(cluster.connection, "/api/v1/namespaces")
        return [each["metadata"]["name"] for each in found]

    return ask(ctx, names)


def _contexts(ctx: click.Context, _: str) -> list[str]:
    from controller.kube.library import list_kube_config_contexts

    contexts, _active = list_kube_config_contexts(config_file=ctx.params.get("kubeconfig") or None)
    return [each["name"] for each in contexts]


def kinds_and_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Kinds for the first word (of our category first), `KIND/NAME` when it has a slash, names for the words behind."""
    from controller.api.labels import CATEGORY
    from controller.kube import crud

    words = ctx.params.get("what") or ()
    kind = incomplete.partition("/")[0] if "/" in incomplete else (words[0] if words else "")

    async def found(cluster: Cluster) -> list[str]:
        served = cluster.discovered
        if not kind:
            return list(dict.fromkeys([r.plural for r in served.in_category(CATEGORY)] + list(served.words())))
        resource = served.named(kind.split(",")[-1])
        objects = await crud.list_all(cluster.connection, resource.collection(cluster.namespace))
        prefix = f"{kind}/" if "/" in incomplete else ""
        return [prefix + each["metadata"]["name"] for each in objects]

    return ask(ctx, found)


complete_kinds_and_names = _completed(kinds_and_names)
complete_namespaces = _completed(_namespaces)
complete_contexts = _completed(_contexts)


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of nodes."""
    return _completed(_nodes)(ctx, param, incomplete)


def _nodes(ctx: click.Context, _: str) -> list[str]:
    from controller.kube import crud

    async def names(cluster: Cluster) -> list[str]:
        found = await crud.list_all(cluster.connection, "/api/v1/nodes")
        return [each["metadata"]["name"] for each in found]

    return ask(ctx, names)


def access_options(command: Command) -> Command:
    """`--context`, `--kubeconfig`, `--as` and its companions, `--request-timeout`: kubectl's, with its meanings.

    The command gets `user`, an Impersonated or None, for the three of `--as`.
    """

    @wraps(command)
    def as_somebody(*args: Any, user: str | None, groups: tuple[str, ...], uid: str | None, **options: Any) -> Any:
        return command(*args, user=impersonated(user, groups, uid), **options)

    decorated: Any = as_somebody
    for option in (
        click.option(
            "--request-timeout",
            "timeout_s",
            type=duration,
            default=DEFAULT_TIMEOUT_S,
            metavar="DURATION",
            help="For each request, such as 5s; 0 waits for ever. Watches are not limited. [default: 30s]",
        ),
        click.option("--as-uid", "uid", metavar="UID", help="With this uid, beside --as."),
        click.option(
            "--as-group", "groups", metavar="GROUP", multiple=True, help="In this group, beside --as; may repeat."
        ),
        click.option("--as", "user", metavar="USER", help="Act as this user or system:serviceaccount:NAMESPACE:NAME."),
        click.option("--kubeconfig", metavar="FILE", help="Kubeconfig to use; else KUBECONFIG or ~/.kube/config."),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig.", shell_complete=complete_contexts),
    ):
        decorated = option(decorated)
    return cast(Command, decorated)


def cluster_options(command: Command) -> Command:
    """`access_options` and `-n`."""
    namespace = click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace; else the one of the context.",
        shell_complete=complete_namespaces,
    )
    return namespace(access_options(command))


def dry_run_option(command: Command) -> Command:
    """`--dry-run=none|client|server`; `client` where no value is given, as kubectl once had it."""
    return click.option(
        "--dry-run",
        type=click.Choice(["none", "client", "server"]),
        default="none",
        show_default=True,
        help="client: say what would be sent. server: let the server check it, and keep nothing.",
    )(command)
