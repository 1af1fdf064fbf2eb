"""What agents and controllers of tests show each other: a certificate for loopback, and tokens that name nodes."""

import ssl
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from controller.loops.server_tls import ServerTls
from nodeagent.settings import ControllerAddress
from power.leases.messages import Refusal
from tests.builders.certificates import Authority


async def names_itself(token: bytes, address: str) -> str | Refusal:
    """`Identify` of tests: a token is the name of its node; one that begins with `wrong` is nobody's."""
    del address
    name = token.decode()
    return Refusal("NotAuthenticated", "a wrong token") if name.startswith("wrong") else name


class Credentials:
    """An authority and a certificate in a folder; both are made where they are missing."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        self.ca, self.certificate, self.key = (
            folder / name for name in ("authority.crt", "localhost.pem", "localhost.key")
        )
        self._folder = folder
        if not self.ca.exists():
            Authority(folder).vouches_for("localhost", "127.0.0.1", *hosts)

    @property
    def power(self) -> dict[str, Any]:
        """The operator's `power.tls`."""
        return {"certificate": str(self.certificate), "key": str(self.key)}

    def serves(self) -> ssl.SSLContext:
        """As the operator serves."""
        return ServerTls(str(self.certificate), str(self.key), lambda: 0.0, "power.tls").context

    def trusts(self) -> ssl.SSLContext:
        """As agents trust."""
        return ControllerAddress(ca=self.ca).context()

    def shown_by(self, token: str) -> dict[str, str]:
        """The part of an agent's `controller` that is about credentials, with this token."""
        path = self._folder / f"{token[-40:]}.token"
        path.write_text(token, encoding="ascii")
        return {"ca": str(self.ca), "token": str(path)}


@cache
def credentials() -> Credentials:
    """Those of this process's tests."""
    return Credentials(Path(mkdtemp(prefix="tonnage-credentials-")))
