"""A Kerberos realm of one cluster: its KDC, its principals with their keytabs, and the certificate of its web pages.

Everything lies in the cluster's folder, and the KDC listens on a port of its own, so nothing of this machine's own Kerberos is
used or changed. The programs are MIT's. Not for a realm that anybody should trust: its keytabs lie beside each other.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from mpca.environment import child_environment
from mpca.errors import EnvironmentRefused
from mpca.private import FILE, opener

__all__ = ["OUTSIDER", "REALM", "USERS", "Lives", "Realm"]

REALM = "MPCA.DEV"
#: People with a folder on HDFS; and one who has only a principal.
USERS, OUTSIDER = ("alice", "bob"), "mallory"
#: A service that the cluster lets act for the users, and a second principal of alice's; core-site.xml has both.
_SERVICE_USER, _ALIAS = "livy", "alice-svc"
_SERVICES = ("hdfs", "yarn")
#: Where `apt` puts the programs of the KDC, which is not on everybody's PATH.
_SBIN = "/usr/sbin"
_APT = "apt install krb5-kdc krb5-admin-server krb5-user curl"
_PAGE_S = 20
_CONFIG = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  rdns = false
  dns_canonicalize_hostname = false
  udp_preference_limit = 1
  forwardable = true
  ticket_lifetime = {ticket_s}s
  renew_lifetime = {renewable_s}s
[realms]
  {realm} = {{
    kdc = {kdc}:{port}
  }}
"""
_KDC = """\
[kdcdefaults]
  kdc_listen = {kdc}:{port}
  kdc_tcp_listen = {kdc}:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/kadm5.acl
    max_life = {ticket_s}s
    max_renewable_life = {renewable_s}s
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{log}
"""


@dataclass(frozen=True)
class Lives:
    """How long tickets, and the delegation tokens of HDFS, are good. The defaults are Kerberos' and Hadoop's own."""

    ticket_s: int = 10 * 3600
    renewable_s: int = 7 * 86400  # how often a ticket may be renewed without a password
    token_renewal_s: int = 86400  # a token ends after this, unless somebody renews it
    token_s: int = 7 * 86400  # a token ends after this


class Realm:
    """The realm in a folder. `make` it once; then `start` the KDC.

    Args:
        folder: for all files of the realm.
        port: of the KDC.
        log: the KDC's log.
        lives: of tickets and tokens.
        kdc: address of this machine that the KDC listens at.
        hosts: host -> address, the NameNode's first, if each daemon's principal has its host's name; None: all daemons are on
            this machine, and those of one kind are one principal, of localhost.
    """

    def __init__(
        self, folder: Path, port: int, log: Path, lives: Lives, kdc: str = "127.0.0.1", hosts: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.port, self.log, self.lives = folder, port, log, lives
        self._kdc, self._hosts = kdc, hosts or {}

    # ---- what others need of it ----

    @property
    def config(self) -> Path:
        """The ``krb5.conf`` of everybody in the realm."""
        return self.folder / "krb5.conf"

    @property
    def made(self) -> bool:
        """Whether `make` came to its end; the trust store is its last file."""
        return (self.folder / "truststore.p12").is_file()

    @property
    def certificate(self) -> Path:
        """What the cluster's web pages are verified by, as PEM."""
        return self.folder / "certificate.pem"

    @property
    def java_options(self) -> tuple[str, ...]:
        return (f"-Djava.security.krb5.conf={self.config}", "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED")

    def keytab(self, user: str) -> Path:
        """A keytab; those of the services are in "services"."""
        return self.folder / f"{user}.keytab"

    def env(self) -> dict[str, str]:
        """Environment variables of everybody in the realm: for MIT's programs, for Java, for what speaks HTTPS."""
        return {
            "KRB5_CONFIG": str(self.config),
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={self.config}",
            "REQUESTS_CA_BUNDLE": str(self.certificate),
        }

    def values(self) -> Mapping[str, object]:
        """Values for the templates."""
        return {
            "realm": REALM,
            "instance": "_HOST" if self._hosts else "localhost",
            "krb5_conf": self.config,
            "services": self.keytab("services"),
            "keystore": self.folder / "keystore.p12",
            "keystore_password": (self.folder / "password").read_text(),
            "truststore": self.folder / "truststore.p12",
            "token_renewal_ms": 1000 * self.lives.token_renewal_s,
            "token_ms": 1000 * self.lives.token_s,
        }

    # ---- making and running it ----

    @staticmethod
    def check() -> None:
        """Look for the programs.

        Raises:
            EnvironmentRefused: one is not installed; says how to install it.
        """
        missing = [one for one in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "curl") if _which(one) is None]
        if missing:
            raise EnvironmentRefused(f"--secure needs {', '.join(missing)}: on Debian, {_APT}")

    def make(self, java_home: str, addresses: tuple[str, ...] = ()) -> None:
        """Write the configuration, the principals with their keytabs, and a certificate for all hosts.

        Args:
            java_home: of the JDK, or JRE, with keytool.
            addresses: by which web pages are reached too.

        Raises:
            EnvironmentRefused: a program fails; with its output.
        """
        shutil.rmtree(self.folder, ignore_errors=True)  # half a realm, of who was killed while it was made
        self.folder.mkdir(parents=True)  # the realm's users read some of its files; the others are for their owner
        words = {
            "realm": REALM,
            "kdc": self._kdc,
            "port": self.port,
            "folder": self.folder,
            "log": self.log,
            "ticket_s": self.lives.ticket_s,
            "renewable_s": self.lives.renewable_s,
        }
        self.config.write_text(_CONFIG.format(**words))
        (self.folder / "kdc.conf").write_text(_KDC.format(**words))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", secrets.token_hex(16))
        hosts = tuple(self._hosts) or ("localhost",)
        services = [f"{service}/{host}" for service in _SERVICES for host in hosts]
        keytabs = dict.fromkeys((*services, *(f"HTTP/{host}" for host in (*addresses, *hosts))), "services")
        keytabs |= {one: one for one in (*USERS, OUTSIDER, _SERVICE_USER, _ALIAS)}
        for principal, keytab in keytabs.items():
            self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
            self._run("kadmin.local", "-r", REALM, "ktadd", "-norandkey", "-k", str(self.keytab(keytab)), principal)
        self._certify(java_home, [f"dns:{host}" for host in hosts] + [f"ip:{one}" for one in addresses])

    def start(self) -> None:
        """Start the KDC, as no child of this process; it answers when this returns."""
        command = ["setsid", "--fork", _which("krb5kdc") or "krb5kdc", "-r", REALM, "-P", self._mark, "-n"]
        with self.log.open("ab") as log:
            subprocess.run(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                check=True,
            )

    def find(self) -> psutil.Process | None:
        """The KDC, if it lives."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if self._mark in process.cmdline():  # setsid's too, which has yet to become the KDC
                    return process
        return None

    def answers(self) -> bool:
        """Whether the KDC gives tickets."""
        return self._kinit("hdfs", self.folder / "answers.cc").returncode == 0

    def end(self) -> None:
        """Kill the KDC, if it lives."""
        process = self.find()
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(_PAGE_S)

    # ---- being somebody ----

    def login(self, user: str, cache: Path, *options: str) -> dict[str, str]:
        """Get a ticket.

        Args:
            user: one of `USERS`, or another whose keytab there is; or "hdfs", the superuser of HDFS.
            cache: the file for the ticket.
            options: of kinit, such as ``-l 2m``.

        Returns:
            Environment variables of a process that is to be this user.

        Raises:
            EnvironmentRefused: no ticket; with kinit's words.
        """
        done = self._kinit(user, cache, *options)
        if done.returncode:
            raise EnvironmentRefused(f"no ticket for {user}: {done.stdout.strip()}")
        return {"KRB5CCNAME": f"FILE:{cache}"}

    def fetch(self, url: str, user: str = "hdfs", *options: str) -> str:
        """A web page of the cluster, over SPNEGO and HTTPS.

        Args:
            url: the page.
            user: "hdfs", the superuser of HDFS, or one of the users.
            options: of curl.

        Raises:
            OSError: there is no answer, or an error.
        """
        keytab = self._keytab_of(user)
        command = [
            *("curl", "-sS", "--fail-with-body", "--noproxy", "*", "-m", str(_PAGE_S), "--negotiate", "-u", ":"),
            *("--cacert", str(self.certificate), "-H", "Accept: application/json", *options),
            *(word for host, address in self._hosts.items() for word in ("--connect-to", f"{host}::{address}:")),
            url,
        ]
        # With these two variables the library gets a ticket by itself, and a new one when that has ended.
        login = {"KRB5_CLIENT_KTNAME": f"FILE:{keytab}", "KRB5CCNAME": f"FILE:{self.folder / user}.cc"}
        done = subprocess.run(
            command, env={**self._environment(), **login}, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            raise OSError(f"{url}: {done.stderr.strip()}: {done.stdout[:500]}")
        return done.stdout

    def make_homes(self, web: str) -> None:
        """Make the folders on HDFS of the users who have one.

        Args:
            web: pages of the active NameNode, such as "https://127.0.0.1:9870".

        Raises:
            OSError: there is no answer, or an error.
        """

        def put(path: str, query: str) -> None:
            self.fetch(f"{web}/webhdfs/v1{path}?{query}", "hdfs", "-X", "PUT")

        put("/user", "op=MKDIRS&permission=755")
        for user in USERS:
            put(f"/user/{user}", "op=MKDIRS&permission=700")
            put(f"/user/{user}", f"op=SETOWNER&owner={user}&group={user}")

    # ---- inside ----

    @property
    def _mark(self) -> str:
        """The word on the KDC's command line by which it is found."""
        return str(self.folder / "kdc.pid")

    def _keytab_of(self, user: str) -> Path:
        return self.keytab("services" if user == "hdfs" else user)

    def _kinit(self, user: str, cache: Path, *options: str) -> subprocess.CompletedProcess[str]:
        principal = f"hdfs/{next(iter(self._hosts), 'localhost')}" if user == "hdfs" else user
        return subprocess.run(
            ["kinit", *options, "-c", f"FILE:{cache}", "-k", "-t", str(self._keytab_of(user)), f"{principal}@{REALM}"],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _certify(self, java_home: str, names: list[str]) -> None:
        """A key that signs itself, and the two stores and the PEM with its certificate. `names` are "dns:..." or "ip:..."."""
        password = secrets.token_hex(16)
        with open(self.folder / "password", "w", opener=opener) as file:
            file.write(password)
        stores = self.values()
        keytool = f"{java_home}/bin/keytool"
        own = ["-storetype", "PKCS12", "-keystore", str(stores["keystore"]), "-storepass", password, "-alias", "mpca"]
        self._run(
            *(keytool, "-genkeypair", *own, "-keyalg", "RSA", "-keysize", "2048", "-validity", "3650", "-dname", "CN=mpca dev"),
            *("-ext", f"san={','.join(names)}", "-ext", "bc=ca:true"),
        )
        Path(str(stores["keystore"])).chmod(FILE)
        self._run(keytool, "-exportcert", "-rfc", *own, "-file", str(self.certificate))
        self._run(
            *(keytool, "-importcert", "-noprompt", "-storetype", "PKCS12", "-keystore", str(stores["truststore"])),
            *("-storepass", "changeit", "-alias", "mpca", "-file", str(self.certificate)),
        )

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [_which(program) or program, *words],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise EnvironmentRefused(f"{program} {words[0]} failed: {done.stdout.strip()}")

    def _environment(self) -> dict[str, str]:
        return child_environment(KRB5_CONFIG=str(self.config), KRB5_KDC_PROFILE=str(self.folder / "kdc.conf"))


def _which(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=_SBIN)
