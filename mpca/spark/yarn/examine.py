"""What in a cluster would prevent a run, or end one early, found out before a container is asked for.

Each question is a small function that answers with a `Finding`. None of them changes anything, except for a short-lived file
in the user's folder. When an answer cannot be had (a web page is closed), the finding says so, and that is no reason to stop.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from mpca.environment import child_environment
from mpca.errors import EnvironmentRefused
from mpca.spark.hdfs.files import ClusterFiles
from mpca.spark.jvm.hadoop import SparkHome
from mpca.spark.jvm.jar import SparkLine, line_of
from mpca.spark.jvm.login import Login, explained, said_name
from mpca.spark.settings import settings
from mpca.spark.yarn.client import Yarn
from mpca.timeouts import PAGE_S
from mpca.units import format_size, parse_duration

__all__ = [
    "Finding",
    "examine",
    "examine_here",
    "jar_here",
    "judge_clock",
    "judge_expiry",
    "judge_java",
    "judge_keytab",
    "judge_realm",
    "judge_space",
    "judge_ticket",
    "judge_tokens",
]

_CLOCK_WARN_S, _CLOCK_BAD_S = 60.0, 300.0  # Kerberos refuses five minutes
_SPACE = 10 << 30
_PROXY_USER = "yarn.resourcemanager.proxy-user-privileges.enabled"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer."""

    what: str
    level: str  # "ok"; "note": good to know; "change": a run would suffer; "stop": a run would not start
    text: str  # what was found and, unless that is good, what to change


def examine_here(home: SparkHome) -> Iterator[Finding]:
    """Examine this machine alone: the interpreter and Spark."""
    python = platform.python_version()
    good = (3, 10) <= sys.version_info[:2] <= (3, 13)
    yield Finding("Python", "ok" if good else "stop", python if good else f"{python}: must be 3.10 to 3.13")
    try:
        line = line_of(home.core_jar)
    except EnvironmentRefused as error:
        yield Finding("Spark", "stop", str(error))
        return
    good = home.version.rpartition(".")[0] == line.spark
    yield Finding(
        "Spark",
        "ok" if good else "change",
        f"{home.version} in {home.path}{'' if good else f': tested with the {line.spark} line'}",
    )
    yield jar_here(line.jar)


def examine(home: SparkHome, jvm: Any, yarn: Yarn, queue: str, folder: str | None) -> Iterator[Finding]:
    """Examine the cluster. The questions come one by one, so that a person sees which one is slow.

    Args:
        home: the Spark that submits.
        jvm: of `hadoop.hadoop_jvm`.
        yarn: a client of YARN in that JVM.
        queue: to which runs would be submitted.
        folder: where runs would be written; None: the user's own.
    """
    files = ClusterFiles(jvm, yarn.configuration)
    with suppress(EnvironmentRefused):  # `examine_here` has said so
        yield judge_java(str(jvm.java.lang.System.getProperty("java.version")), line_of(home.core_jar))
    login = _asked("login", lambda: _login(jvm, yarn))
    yield login
    if name := said_name(jvm):
        yield Finding("user name", "note", name)
    secured = bool(jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled())
    if login.level == "stop":  # nobody would answer any of the others
        return
    admitted = _asked("ticket" if secured else "ResourceManager", lambda: _admitted(yarn))
    if secured or admitted.level == "stop":
        yield admitted
    if admitted.level != "stop":  # else each question would be waited for again
        client = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        yield from _of_yarn(yarn, _Web(yarn, jvm if secured else None), client, queue, secured)
    elif secured:
        return
    yield _asked("HDFS", lambda: _rights(files, folder or files.home()))
    yield _asked("space", lambda: judge_space(files.space(folder or files.home())))
    yield _asked("clock", lambda: _clock(files, folder or files.home()))


def _of_yarn(yarn: Yarn, web: _Web, client: str, queue: str, secured: bool) -> Iterator[Finding]:
    yield _asked("Hadoop", lambda: _versions(client, web))
    yield _asked("nodes", lambda: _nodes(yarn))
    yield _asked("largest container", lambda: _largest(yarn))
    yield _asked("queue", lambda: _queue(yarn, queue))
    yield _asked("virtual memory", lambda: _vmem(yarn, web))
    yield _asked("attempts", lambda: _attempts(yarn, web))
    if secured:
        yield _asked("tokens", lambda: judge_tokens(web.setting(_PROXY_USER, "false")))
    yield _asked("node expiry", lambda: judge_expiry(web.setting("yarn.nm.liveness-monitor.expiry-interval-ms", "600000")))
    yield _asked("GPUs", lambda: _gpus(yarn))


# ---- judging: values in, a finding out -----------------------------------------------------------------------------------


def judge_java(version: str, line: SparkLine) -> Finding:
    """Judge ``17.0.15``, or ``1.8.0_392``."""
    known = re.split(r"[._]", version.removeprefix("1."))[0] in line.javas
    return Finding(
        "Java", "ok" if known else "change", f"{version}{'' if known else f': Spark {line.spark} wants {line.java}'}"
    )


def judge_space(remaining: int) -> Finding:
    """A backup needs three times the model; when HDFS is nearly full, all backups fail."""
    if remaining >= _SPACE:
        return Finding("space", "ok", f"{format_size(remaining)} left")
    return Finding(
        "space", "change", f"{format_size(remaining)} left: each backup needs three times the size of the model; make room"
    )


def judge_clock(seconds: float) -> Finding:
    """Judge the NameNode's clock, which is `seconds` ahead of ours."""
    text = f"the NameNode's is {abs(seconds):.1f} s {'ahead' if seconds > 0 else 'behind'}"
    if abs(seconds) < _CLOCK_WARN_S:
        return Finding("clock", "ok", text)
    level = "stop" if abs(seconds) >= _CLOCK_BAD_S else "change"
    return Finding(
        "clock", level, f"{text}: Kerberos refuses a difference of {_CLOCK_BAD_S:.0f} s; use one time server for all machines"
    )


def judge_keytab(login: Login) -> Finding:
    """Judge the file; whether its key is good, the KDC says."""
    try:
        login.check()
    except EnvironmentRefused as error:
        return Finding("keytab", "stop", str(error))
    others = login.readers()
    return Finding("keytab", "change" if others else "ok", others or f"of {login.principal}, for its owner alone")


def judge_ticket(shown: str, good: bool) -> Finding:
    """Why Java found no ticket.

    Args:
        shown: what klist shows; empty: no cache.
        good: whether klist found a ticket that is good.
    """
    found = dict(re.findall(r"^(Ticket cache|Default principal): (.+)$", shown, re.MULTILINE))
    cache, principal = found.get("Ticket cache", ""), found.get("Default principal", "")
    if not principal:
        said = "no Kerberos ticket: run kinit, or name --principal and --keytab; for a run spark.kerberos.principal and .keytab"
    elif not good:
        said = f"the ticket of {principal} has expired: run kinit"
    else:
        said = (
            f"the ticket of {principal} is in {cache}, where Java finds none: it reads files alone; "
            "export KRB5CCNAME=FILE:/tmp/krb5cc_$(id -u) and run kinit"
        )
    return Finding("login", "stop", said)


def judge_realm(principal: str, realm: str, who: str) -> Finding:
    """Judge whose ticket it is.

    Args:
        principal: of the login.
        realm: of the cluster's daemons; empty: not known.
        who: the login, for people.
    """
    own = principal.partition("@")[2]
    if not own or not realm or own == realm:
        return Finding("login", "ok", who)
    return Finding(
        "login",
        "change",
        f"{who}: {principal} is of another realm than the cluster, {realm}; unless they trust each other, kinit there",
    )


def judge_expiry(milliseconds: str) -> Finding:
    """Compare YARN's node expiry with our RPC time-outs. YARN looks for expired nodes three times within an expiry."""
    noticed = int(milliseconds) / 1000 * 4 / 3
    ours = parse_duration(settings(yarn=True)["spark.rpc.askTimeout"])
    text = f"a lost node is noticed after up to {noticed:.0f} s"
    if noticed < ours:
        return Finding("node expiry", "ok", text)
    return Finding(
        "node expiry",
        "change",
        f"{text}: set spark.rpc.askTimeout and spark.rpc.io.connectionTimeout above it (they are {ours:.0f} s), or "
        "yarn.nm.liveness-monitor.expiry-interval-ms lower; else a lost node ends the run as SUCCEEDED",
    )


def judge_tokens(value: str) -> Finding:
    """Whether YARN gets new tokens for a driver that it starts again, in a realm.

    A NodeManager fetches the driver's files by the tokens of the submission, before the driver can log in with its keytab.
    """
    if value == "true":
        return Finding("tokens", "ok", "YARN gets new ones for a driver that it starts again")
    return Finding(
        "tokens",
        "change",
        "a driver that dies later than dfs.namenode.delegation.token.max-lifetime after its submission is not started again; "
        f"set {_PROXY_USER}=true, and hadoop.proxyuser.yarn.hosts and .groups on the NameNodes",
    )


# ---- asking ------------------------------------------------------------------------------------------------------------


def _asked(what: str, ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except EnvironmentRefused as error:
        return Finding(what, "stop", str(error))
    except (_Closed, Py4JError) as error:
        return Finding(what, "note", f"not known: {str(error).splitlines()[0]}")


def _login(jvm: Any, yarn: Yarn) -> Finding:
    group = jvm.org.apache.hadoop.security.UserGroupInformation
    user = group.getCurrentUser()
    service, name = user.getRealUser(), str(user.getShortUserName())
    if service is not None:
        user, name = service, f"{name} (for whom {service.getShortUserName()} acts)"
    if not group.isSecurityEnabled():
        return Finding("login", "ok", f"{name}; no Kerberos here")
    if user.hasKerberosCredentials() or user.isFromKeytab():
        principal, how = str(user.getUserName()), "a keytab" if user.isFromKeytab() else "Kerberos"
        return judge_realm(principal, yarn.setting("yarn.resourcemanager.principal").partition("@")[2], f"{name} by {how}")
    return judge_ticket(*_klist())


def _admitted(yarn: Yarn) -> Finding:
    yarn.queues()
    return Finding("ticket", "ok", "the ResourceManager takes it")


def _klist() -> tuple[str, bool]:
    """What MIT's klist shows, and whether it finds a ticket that is good; empty without klist or without a cache."""

    def klist(*words: str) -> subprocess.CompletedProcess[str]:
        environment = child_environment(LC_ALL="C")
        command = ["klist", *words]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False)

    try:
        return klist().stdout, klist("-s").returncode == 0
    except FileNotFoundError:
        return "", False


def _versions(client: str, web: _Web) -> Finding:
    cluster = str(web.resourcemanager("ws/v1/cluster/info")["clusterInfo"]["resourceManagerVersion"])
    if cluster.startswith("3."):
        return Finding("Hadoop", "ok", f"{cluster} on the cluster, {client} in this Spark")
    return Finding("Hadoop", "change", f"{cluster} on the cluster, {client} in this Spark: tested with 3.1 to 3.4")


def _nodes(yarn: Yarn) -> Finding:
    nodes, ill = yarn.nodes(), yarn.unhealthy()
    if not ill:
        return Finding("nodes", "ok" if nodes else "stop", f"{len(nodes)} running")
    return Finding("nodes", "change", f"{len(nodes)} running, {len(ill)} unhealthy: {ill[0][0]}: {ill[0][1]}")


def _largest(yarn: Yarn) -> Finding:
    largest = yarn.largest()
    text = f"{format_size(largest.memory)}, {largest.cores} vcores (bounded by {largest.why})"
    return Finding("largest container", "ok", text)


def _queue(yarn: Yarn, name: str) -> Finding:
    found = yarn.check_queue(name)
    share = "a fair share of the cluster" if found.fair else f"{found.capacity:.0%} of its parent"
    return Finding("queue", "ok", f"{found.name}: {share}")


def _vmem(yarn: Yarn, web: _Web) -> Finding:
    key = "yarn.nodemanager.vmem-check-enabled"
    node, address = yarn.nodes()[0]
    try:
        value, source = web.configured(f"{web.scheme}://{address}", key), node
    except _Closed:
        value, source = yarn.setting(key, "true"), "by this machine's configuration"
    if value == "false":
        return Finding("virtual memory", "ok", f"not checked ({source})")
    return Finding(
        "virtual memory",
        "change",
        f"checked ({source}): torch with CUDA reserves more than is allowed, and YARN kills it; set {key}=false",
    )


def _attempts(yarn: Yarn, web: _Web) -> Finding:
    key = "yarn.resourcemanager.am.max-attempts"
    value = int(web.setting(key, "2"))
    text = f"{value} of a driver in cluster mode"
    if value >= 2:
        return Finding("attempts", "ok", text)
    return Finding("attempts", "change", f"{text}: a driver that dies is not started again; set {key}=4")


def _gpus(yarn: Yarn) -> Finding:
    if "yarn.io/gpu" in yarn.resource_types():
        return Finding("GPUs", "ok", f"counted as yarn.io/gpu; {yarn.gpus()} in the node with most")
    return Finding("GPUs", "note", "not counted: cluster.device = 'cuda' needs yarn.io/gpu in resource-types.xml")


def _rights(files: ClusterFiles, folder: str) -> Finding:
    files.probe(folder)
    return Finding("HDFS", "ok", f"written, renamed and read in {folder}")


def _clock(files: ClusterFiles, folder: str) -> Finding:
    before = time.time()
    try:
        stamp = files.clock(folder)
    except EnvironmentRefused as error:  # _rights reports it
        raise _Closed(str(error)) from None
    return judge_clock(stamp - (before + time.time()) / 2)


class _Closed(Exception):
    """A web page did not answer."""


class _Web:
    """Web pages of YARN's daemons, which know the configuration of their machines."""

    def __init__(self, yarn: Yarn, jvm: Any = None) -> None:
        """`jvm` shows the ticket that a secured cluster's pages want; None: no page wants one."""
        self._yarn, self._jvm = yarn, jvm
        https = yarn.setting("yarn.http.policy") == "HTTPS_ONLY"
        self.scheme = "https" if https else "http"
        key = "yarn.resourcemanager.webapp.https.address" if https else "yarn.resourcemanager.webapp.address"
        self._addresses = [f"{self.scheme}://{one}" for one in yarn.resourcemanagers(key)]

    def resourcemanager(self, path: str) -> Any:
        for address in self._addresses[:-1]:
            try:
                return self._get(f"{address}/{path}")
            except _Closed:
                continue
        return self._get(f"{self._addresses[-1]}/{path}")

    def setting(self, key: str, default: str) -> str:
        """A key as the ResourceManager has it, else as this machine's files have it."""
        for address in self._addresses:
            try:
                return self.configured(address, key)
            except _Closed:
                continue
        return self._yarn.setting(key, default)

    def configured(self, address: str, key: str) -> str:
        found = self._get(f"{address}/conf?format=json&name={key}")
        try:
            return str(found["property"]["value"])
        except (KeyError, TypeError):
            raise _Closed(f"{address} does not say {key}") from None

    def _get(self, url: str) -> Any:
        if self._jvm is not None:
            return self._get_with_ticket(url)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a cluster is reached without a proxy
        try:
            request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - http of YARN's settings
            with opener.open(request, timeout=PAGE_S) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise _Closed(f"{url}: {error}") from None

    def _get_with_ticket(self, url: str) -> Any:
        milliseconds, java = int(1000 * PAGE_S), self._jvm
        try:
            factory = java.org.apache.hadoop.hdfs.web.URLConnectionFactory.newDefaultURLConnectionFactory(
                milliseconds, milliseconds, self._yarn.configuration
            )
            stream = factory.openConnection(java.java.net.URL(url), True).getInputStream()
            return json.loads(java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        except Py4JJavaError as error:
            if java.org.apache.hadoop.security.UserGroupInformation.isLoginKeytabBased():
                raise _Closed(f"{url}: such pages are shown to a ticket alone, and this login is by a keytab") from None
            raise _Closed(f"{url}: {explained(error)[0]}") from None
        except ValueError as error:
            raise _Closed(f"{url}: {error}") from None


def jar_here(path: Path) -> Finding:
    """Our own jar, which may not be built in a source checkout."""
    if path.is_file():
        return Finding("jar", "ok", path.name)
    return Finding("jar", "stop", f"not built: {path}; run `make setup`")
