"""Who a command is to the cluster: by a keytab that Spark's settings name, else by the user's ticket; and why Kerberos refuses.

A service that may act for others (``hadoop.proxyuser.*`` of the cluster) shows its own ticket and counts as them: by
spark-submit's ``--proxy-user``, or by HADOOP_PROXY_USER with anything of Hadoop's. A principal becomes a user's name by
``hadoop.security.auth_to_local``, which Hadoop alone applies.

Not for WebHDFS, which has no JVM: `mpca.storage.kerberos`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpca.checks import refused
from mpca.environment import environment
from mpca.errors import ConfigError, EnvironmentRefused
from mpca.kerberos import remedy

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError

__all__ = [
    "PROXY_USER",
    "Login",
    "become",
    "by_ticket_alone",
    "check_proxy_user",
    "explained",
    "login_of",
    "refuse_webhdfs",
    "said_name",
    "try_login",
]

#: Spark's names, and those of Spark 2.
_PRINCIPALS = ("spark.kerberos.principal", "spark.yarn.principal")
_KEYTABS = ("spark.kerberos.keytab", "spark.yarn.keytab")
#: Hadoop's variable: its client counts as this user, by the login of whoever set it.
PROXY_USER = "HADOOP_PROXY_USER"


@dataclass(frozen=True, slots=True)
class Login:
    """A principal, and the file with its key."""

    principal: str
    keytab: str

    def check(self) -> None:
        """Look at the keytab.

        Raises:
            EnvironmentRefused: it cannot be read.
        """
        try:
            with open(self.keytab, "rb") as file:
                there = file.read(1)
        except OSError as error:
            raise EnvironmentRefused(
                f"{_KEYTABS[0]} = {self.keytab}: {error.strerror}; name a file of yours with the key of {self.principal}"
            ) from None
        if there != b"\5":  # the first byte of all of them
            raise EnvironmentRefused(
                f"{_KEYTABS[0]} = {self.keytab}: not a keytab; `klist -k {self.keytab}` shows what is in one"
            )

    def readers(self) -> str:
        """Who else may read the keytab, with what to do about it; empty: nobody may."""
        mode = stat.S_IMODE(os.stat(self.keytab).st_mode)
        if not mode & (stat.S_IRGRP | stat.S_IROTH):
            return ""
        who = "everybody" if mode & stat.S_IROTH else "its group"
        return (
            f"the keytab can be read by {who} ({mode:04o}), and whoever reads it is {self.principal}: chmod 600 {self.keytab}"
        )


def login_of(settings: Mapping[str, str]) -> Login | None:
    """The login that Spark's settings name; None: they name none, and the user's ticket counts.

    Raises:
        EnvironmentRefused: they name half of it.
    """
    principal, keytab = (next((settings[one] for one in keys if settings.get(one)), "") for keys in (_PRINCIPALS, _KEYTABS))
    if bool(principal) != bool(keytab):
        has, lacks = (_PRINCIPALS, _KEYTABS) if principal else (_KEYTABS, _PRINCIPALS)
        raise EnvironmentRefused(f"{has[0]} is set, and {lacks[0]} is not: Spark needs both, or neither of them")
    return Login(principal, keytab) if principal else None


def check_proxy_user(user: str, login: Login | None) -> None:
    """Look at what stands beside ``--proxy-user``.

    Raises:
        ConfigError: spark-submit would refuse it, or would be another user than our checks.
    """
    if login is not None:
        raise ConfigError(
            f"--proxy-user {user}: Spark takes no keytab beside it, and {_KEYTABS[0]} = {login.keytab}; leave both settings "
            f"out, and run kinit -k -t {login.keytab} {login.principal}"
        )
    if other := environment(PROXY_USER):
        raise ConfigError(f"--proxy-user {user}: {PROXY_USER} = {other} is set too; unset it")


def by_ticket_alone(jvm: Any) -> str:
    """For whom the service acts that this JVM is logged in as, when the process around it shows the service's ticket and is the
    service: a driver that spark-submit's --proxy-user started in client mode. Empty: they are one.
    """
    user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
    return "" if user.getRealUser() is None or environment(PROXY_USER) else str(user.getShortUserName())


def refuse_webhdfs(user: str, places: Mapping[str, str]) -> None:
    """Refuse what would be reached without a JVM, and so not as `user`.

    Args:
        user: for whom a service acts; empty: for nobody, and nothing is refused.
        places: by key of the configuration.

    Raises:
        ConfigError: which place, and what to write.
    """
    for key, path in places.items():
        if user and path.startswith(("webhdfs:", "swebhdfs:")):
            raise refused(
                key,
                path,
                f"would be reached by the service's own ticket, and not as {user} (--proxy-user): write it as hdfs://",
            )


def become(jvm: Any, login: Login) -> None:
    """Log a JVM in; nothing where there is no Kerberos.

    Raises:
        EnvironmentRefused: the KDC refuses, or none answers; with the remedy.
    """
    _log_in(login, jvm.org.apache.hadoop.security.UserGroupInformation.loginUserFromKeytab)


def try_login(jvm: Any, login: Login) -> None:
    """Whether the keytab still logs in; the JVM stays who it is. It may wait for the KDC for more than a minute.

    Raises:
        EnvironmentRefused: as of `become`.
    """
    _log_in(login, jvm.org.apache.hadoop.security.UserGroupInformation.loginUserFromKeytabAndReturnUGI)


def _log_in(login: Login, how: Callable[[str, str], Any]) -> None:
    from py4j.protocol import Py4JJavaError

    login.check()
    try:
        how(login.principal, login.keytab)
    except Py4JJavaError as error:
        text, advice = explained(error)
        if "obtain password from user" in text:  # Java's words for: the key is not in the file
            text, advice = "the keytab has no key of it", f"`klist -k {login.keytab}` shows whose keys it has"
        raise EnvironmentRefused(f"no login as {login.principal}: {text}; {advice or 'see the log of the KDC'}") from None


def said_name(jvm: Any) -> str:
    """What HADOOP_USER_NAME does on this cluster, for people; empty: it is not set."""
    name = environment("HADOOP_USER_NAME")
    if not name:
        return ""
    if jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled():
        return f"HADOOP_USER_NAME = {name} counts for nothing here: Kerberos says who you are; unset it"
    return f"HADOOP_USER_NAME = {name} is who you are here: without Kerberos, the cluster believes every name"


def explained(error: Py4JJavaError) -> tuple[str, str]:
    """What a JVM threw, in a line, and what to do about it; the latter is empty unless Kerberos is the reason.

    Kerberos' own words are those of a cause; what was thrown may say only that a connection failed.
    """
    texts: list[str] = []
    thrown = error.java_exception
    while thrown is not None and len(texts) < 10:
        texts.append((str(thrown.toString()).splitlines() or [""])[0])
        thrown = thrown.getCause()
    advice = remedy(" ".join(texts))
    own = next((one for one in texts if advice and remedy(one) == advice and len(one) < len(texts[0])), texts[0])
    return own, advice
