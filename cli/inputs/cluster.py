"""Cluster that a verb works on: the options shared by all such verbs, and the connection made from them."""

import re
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:  # half a second of imports that `--help` does not need
    from controller.kube.api_server import ApiServer
    from controller.kube.credentials import Access
    from controller.kube.discovery import Discovered

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_TIMEOUT_S = 30.0
COMPLETION_S = 1.5
"""Longest wait of a completion; a shell blocks meanwhile."""


@dataclass(frozen=True, slots=True)
class Target:
    """Cluster to connect to, the user to act as, and the namespace."""

    access: "Access"
    namespace: str | None = None
    """None: the namespace of the kubeconfig's context."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Open connection, the resources that the server serves, and the namespace in effect."""

    connection: "ApiServer"
    discovered: "Discovered"
    namespace: str


Work = Callable[[Cluster], Coroutine[Any, Any, T]]


def on_cluster(target: Target, work: Work[T]) -> T:
    """Connect, discover what the server serves, and return the result of `work`.

    Raises ConfigError, KubeReadError, KubeWriteError.
    """
    import asyncio

    from controller.kube.connection import connect

    async def run() -> T:
        async with await connect(target.access, time.monotonic, on_warning=_warn) as connection:
            return await _on(connection, target, work)

    return asyncio.run(run())


def on_cluster_in_turn(target: Target, work: Work[T], within_s: float | None = None) -> T:
    """The same for work that sends one request after another and waits for nothing else: it starts much sooner.

    within_s: time for all requests together, seconds; None: each has its own limit alone.
    """
    from controller.kube.blocking_connection import connect_blocking, run_to_end

    connection = connect_blocking(target.access, _warn, within_s)
    if connection is None:
        return on_cluster(target, work)
    try:
        return run_to_end(_on(connection, target, work))
    finally:
        connection.close()


async def _on(connection: "ApiServer", target: Target, work: Work[T]) -> T:
    from controller.kube.discovery import discover

    return await work(Cluster(connection, await discover(connection), target.namespace or connection.namespace))


def listed(target: Target, plural: str, *, all_namespaces: bool = False) -> list[dict[str, Any]]:
    """Objects of a kind: of all namespaces, or of the target's. Raises as `on_cluster`."""
    from controller.kube import crud

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        path = cluster.discovered.named(plural).collection("" if all_namespaces else cluster.namespace)
        return await crud.list_all(cluster.connection, path)

    return on_cluster_in_turn(target, work)


def _warn(words: str) -> None:
    click.echo(f"Warning: {words}", err=True)


@dataclass(frozen=True, slots=True)
class Impersonated:
    """User to impersonate: `--as`, `--as-group` and `--as-uid`."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""


def impersonated(user: str | None, groups: Sequence[str], uid: str | None) -> Impersonated | None:
    """User of the `--as` options; None when nobody is impersonated. Raises click.UsageError."""
    if user is None and (groups or uid):
        raise click.UsageError("--as-group and --as-uid need --as")
    return None if user is None else Impersonated(user, tuple(groups), uid or "")


def target_from(
    kubeconfig: str | None,
    context: str | None,
    user: Impersonated | None,
    timeout_s: float,
    namespace: str | None = None,
) -> Target:
    from controller.kube.credentials import Access

    identity = user or Impersonated("")
    access = Access(
        kubeconfig=kubeconfig or "",
        context=context or "",
        impersonate=identity.user,
        impersonate_groups=identity.groups,
        impersonate_uid=identity.uid,
        request_timeout_s=timeout_s,
    )
    return Target(access, namespace)


def duration(value: str | float) -> float:
    """Seconds of `30s`, `1m30s`, `500ms` or a bare number, as kubectl reads them. Raises click.BadParameter."""
    try:
        return float(value) if isinstance(value, int | float) else seconds_from(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a duration; write 30s, 1m30s or 500ms") from None


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_from(text: str) -> float:
    """Seconds of a duration such as `1m30s`. Raises ValueError for any other text."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _completed(names: Callable[[click.Context, str], list[str]]) -> Callable[..., list[CompletionItem]]:
    """Completion that offers nothing when the cluster does not answer: a Tab has no place for an error."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: list[str] = []
        with suppress(Exception):
            found = names(ctx, incomplete)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


def ask(ctx: click.Context, work: Work[list[str]]) -> list[str]:
    """Names from the cluster that the options typed so far select, within COMPLETION_S in total."""
    params = ctx.params
    identity = impersonated(params.get("user"), params.get("groups") or (), params.get("uid"))
    target = target_from(
        params.get("kubeconfig"), params.get("context"), identity, COMPLETION_S, params.get("namespace")
    )

    return on_cluster_in_turn(target, work, COMPLETION_S)


def _namespaces(ctx: click.Context, _: str) -> list[str]:
    from controller.kube import crud

    async def names(cluster: Cluster) -> list[str]:
        found = await crud.list_all(cluster.connection, "/api/v1/namespaces")
        return [each["metadata"]["name"] for each in found]

    return ask(ctx, names)


def _contexts(ctx: click.Context, _: str) -> list[str]:
    from controller.kube.credentials import context_names

    return context_names(ctx.params.get("kubeconfig") or "")


def kinds_and_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Kinds for the first word (Tonnage's first), `KIND/NAME` when it has a slash, object names for later words."""
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
    """Node names."""
    return _completed(_nodes)(ctx, param, incomplete)


def _nodes(ctx: click.Context, _: str) -> list[str]:
    from controller.kube import crud

    async def names(cluster: Cluster) -> list[str]:
        found = await crud.list_all(cluster.connection, "/api/v1/nodes")
        return [each["metadata"]["name"] for each in found]

    return ask(ctx, names)


def access_options(command: Command) -> Command:
    """Adds `--context`, `--kubeconfig`, `--as`, `--as-group`, `--as-uid` and `--request-timeout`, as kubectl has them.

    The command receives `user`, an Impersonated or None, instead of the three `--as` options.
    """

    @wraps(command)
    def with_user(*args: Any, user: str | None, groups: tuple[str, ...], uid: str | None, **options: Any) -> Any:
        return command(*args, user=impersonated(user, groups, uid), **options)

    decorated: Any = with_user
    for option in (
        click.option(
            "--request-timeout",
            "timeout_s",
            type=duration,
            default=DEFAULT_TIMEOUT_S,
            metavar="DURATION",
            help="Limit of each request, such as 5s; 0: no limit. Watches have none. [default: 30s]",
        ),
        click.option("--as-uid", "uid", metavar="UID", help="UID to act with; needs --as."),
        click.option(
            "--as-group", "groups", metavar="GROUP", multiple=True, help="Group to act in; needs --as; may be repeated."
        ),
        click.option("--as", "user", metavar="USER", help="Act as this user or system:serviceaccount:NAMESPACE:NAME."),
        click.option("--kubeconfig", metavar="FILE", help="Kubeconfig to use. [default: KUBECONFIG or ~/.kube/config]"),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig.", shell_complete=complete_contexts),
    ):
        decorated = option(decorated)
    return cast(Command, decorated)


def cluster_options(command: Command) -> Command:
    """Adds `access_options` and `-n`."""
    namespace = click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace. [default: that of the context]",
        shell_complete=complete_namespaces,
    )
    return namespace(access_options(command))


def dry_run_option(command: Command) -> Command:
    """Adds `--dry-run=none|client|server`."""
    return click.option(
        "--dry-run",
        type=click.Choice(["none", "client", "server"]),
        default="none",
        show_default=True,
        help="client: show what would be sent. server: have the server check it without storing anything.",
    )(command)
