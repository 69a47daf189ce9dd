"""Kerberos for WebHDFS, in processes without a JVM: by the user's ticket, or by the token in a container of YARN.

The NameNode and we show each other a ticket with every request (SPNEGO, mutual authentication). A DataNode shows only its
certificate: it takes the token that the NameNode put into the address. So there is no Kerberos without HTTPS here.
"""

from __future__ import annotations

import base64
import binascii
import errno
import re
from collections.abc import Collection
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from requests.auth import AuthBase

from mpca.extras import extras
from mpca.kerberos import remedy

__all__ = ["HttpsOnly", "Spnego", "container_token"]

_SPNEGO = "1.3.6.1.5.5.2"


def container_token(data: bytes, host: str) -> str:
    """HDFS' delegation token in a file of tokens, as WebHDFS takes it; empty: there is none.

    A container of YARN has such a file, which HADOOP_TOKEN_FILE_LOCATION names. It is written once, so its tokens end (by
    default after seven days); the JVM beside gets newer ones by Spark's own way.

    Args:
        data: the file: ``HDTS``, a version, a count; for each token an alias and the token, which is what travels in a URL:
            identifier, password, kind and service, each with its length before it.
        host: of the NameNode, which decides when there are tokens of several clusters.

    Raises:
        ValueError: the file is of another form.
    """
    if data[:5] != b"HDTS\0":
        raise ValueError("not a file of tokens as Hadoop 2 and 3 write it")
    at = 5
    found: list[tuple[bool, int, bytes]] = []

    def number() -> int:
        """Hadoop's VInt; here never negative."""
        nonlocal at
        first = data[at]
        size = 0 if first < 128 else 256 - first - 112
        at += 1 + size
        return int.from_bytes(data[at - size : at], "big") if size else first

    def field() -> bytes:
        nonlocal at
        length = number()
        at += length
        return data[at - length : at]

    try:
        for _ in range(number()):
            field()  # the alias
            begin = at
            _, _, kind, service = field(), field(), field(), field()
            if kind == b"HDFS_DELEGATION_TOKEN":
                found.append((service.partition(b":")[0] != host.encode(), len(found), data[begin:at]))
    except IndexError:
        raise ValueError("a file of tokens that ends early") from None
    return base64.urlsafe_b64encode(min(found)[2]).rstrip(b"=").decode() if found else ""


class Spnego(AuthBase):
    """Shows our ticket to some hosts, and believes their answers only when they show theirs. Thread-safe.

    Args:
        addresses: ``host:port`` of them; requests to others go without a ticket.

    Raises:
        EnvironmentRefused: gssapi is not installed; names its extra.
    """

    def __init__(self, addresses: Collection[str]) -> None:
        with extras():
            import gssapi
        self._gssapi: Any = gssapi
        self._addresses = frozenset(addresses)

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Add the ticket.

        Raises:
            PermissionError: no ticket for this host; with the remedy.
        """
        where = urlsplit(str(request.url))
        if where.netloc in self._addresses:
            gssapi = self._gssapi
            try:
                context = gssapi.SecurityContext(
                    name=gssapi.Name(f"HTTP@{where.hostname}", gssapi.NameType.hostbased_service),
                    flags=[gssapi.RequirementFlag.mutual_authentication],
                    mech=gssapi.OID.from_int_seq(_SPNEGO),
                    usage="initiate",
                )
                token = context.step()
            except gssapi.exceptions.GSSError as error:
                raise self._refusal(error, where.netloc) from None
            request.headers["Authorization"] = f"Negotiate {base64.b64encode(token).decode()}"
            request.register_hook("response", partial(self._verify, context))
        return request

    def _verify(self, context: Any, response: Response, *_: Any, **__: Any) -> None:
        """Check the answer of a host to which we showed a ticket; a redirection's answer comes from elsewhere."""
        where = urlsplit(response.url).netloc
        if where not in self._addresses or response.status_code == 401:  # a host that refuses us shows nothing
            return
        found = re.search(r"Negotiate\s+([^\s,]+)", response.headers.get("www-authenticate", ""), re.IGNORECASE)
        try:
            if found is not None:
                context.step(base64.b64decode(found[1]))
        except (self._gssapi.exceptions.GSSError, binascii.Error) as error:
            raise PermissionError(errno.EACCES, f"the NameNode's ticket is not good: {error}", where) from None
        if not context.complete:
            raise PermissionError(errno.EACCES, "the NameNode shows no ticket: its answer is not believed", where)

    def _refusal(self, error: Exception, where: str) -> PermissionError:
        said = str(error)
        detail = re.search(r"Minor \(\d+\): (.*)", said, re.DOTALL)
        text = (detail[1] if detail else said).strip()
        return PermissionError(errno.EACCES, f"Kerberos: {text}; {remedy(said) or 'see klist'}", where)


class HttpsOnly(BaseAdapter):
    """In a session's place for ``http://``: a cluster that is asked over HTTPS may not lead to plain HTTP."""

    def send(self, request: PreparedRequest, *_: Any, **__: Any) -> Response:
        """Refuse.

        Raises:
            PermissionError: always.
        """
        where = urlsplit(str(request.url)).netloc
        raise PermissionError(errno.EACCES, "HDFS is asked over HTTPS, and its answer leads to plain HTTP", where)

    def close(self) -> None: ...
