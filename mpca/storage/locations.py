"""Locations of runs and backups: a path on this machine, or a URL of HDFS. This file alone parses and prints them.

Not for opening a location: `opening.py`.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from mpca.checks import refuse_password
from mpca.environment import environment
from mpca.errors import ConfigError

__all__ = ["SCHEMES", "Location", "has_name_services", "webhdfs_of"]

#: A text without "://" is a path on this machine.
SCHEMES = ("file", "hdfs", "webhdfs", "swebhdfs")
#: What a store must do, and others of Hadoop's file systems do not, or were not seen to do.
_MUST = (
    "a run needs that a folder is renamed at once, so that a backup is whole, and that only one of two creates a file, "
    "which is its lock"
)
_UNTRIED = {
    **dict.fromkeys(("s3", "s3a", "s3n"), f": {_MUST}; s3a copies object by object, and lets both create"),
    **dict.fromkeys(
        ("ofs", "o3fs"), f": {_MUST}; Ozone may with buckets of the layout FILE_SYSTEM_OPTIMIZED, but nobody has tried"
    ),
}


@dataclass(frozen=True)
class Location:
    """A folder or file. `text` is the form for people, without user info."""

    scheme: str  # one of SCHEMES
    authority: str  # host:port, a name service, or several of them with ";"; empty for file
    path: str  # absolute, without a "/" at its end
    user: str = ""

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> Location:
        """Parse a path or a URL.

        Raises:
            ConfigError: no store serves the scheme, the host or the path is missing or wrong, or the URL has a password
                (which the error does not repeat).
        """
        text = os.fspath(text)
        refuse_password("location", text)
        scheme, separator, rest = text.partition("://")
        if not separator:
            return cls("file", "", os.path.abspath(text))
        authority, _, path = rest.partition("/")
        user, _, host = authority.rpartition("@")
        if scheme not in SCHEMES:
            known = ", ".join(f"{one}://" for one in SCHEMES)
            why = _UNTRIED.get(scheme, "")
            raise ConfigError(f"no store for this location: {text}{why}; known: a path of this machine, {known}")
        if scheme == "file" and authority:
            raise ConfigError(f"not a file of this machine: {text}; write file:///path")
        if scheme.endswith("webhdfs") and not host:
            raise ConfigError(f"no host in the location {text}: write {scheme}://HOST:9870/path")
        if ".." in path.split("/"):
            raise ConfigError(f"the path of a location has '..' in it: {text}")
        return cls(scheme, host, "/" + path.strip("/"), user)

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def text(self) -> str:
        return self.path if self.is_local else f"{self.scheme}://{self.authority}{self.path}"

    @property
    def url(self) -> str:
        """For Hadoop's client."""
        return f"file://{self.path}" if self.is_local else self.text

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        return replace(self, path=self.path.rpartition("/")[0] or "/")

    def __truediv__(self, name: str) -> Location:
        return replace(self, path=f"{self.path.rstrip('/')}/{name}")


def webhdfs_of(location: Location) -> Location:
    """The WebHDFS location of an ``hdfs://`` location, by the files in HADOOP_CONF_DIR.

    Raises:
        ConfigError: HADOOP_CONF_DIR is not set, or belongs to another cluster; or Kerberos would go over plain HTTP.
    """
    remedy = "write it as webhdfs://HOST:9870/path, or point HADOOP_CONF_DIR to the cluster's configuration"
    folder = environment("HADOOP_CONF_DIR")
    if not folder:
        raise ConfigError(f"which WebHDFS serves {location.text} is not known: HADOOP_CONF_DIR is not set; {remedy}")
    settings = {**_settings(Path(folder, "core-site.xml")), **_settings(Path(folder, "hdfs-site.xml"))}
    default = urlsplit(settings.get("fs.defaultFS", "")).netloc
    service = location.authority or default
    policy, kerberos = (
        settings.get("dfs.http.policy", "HTTP_ONLY"),
        settings.get("hadoop.security.authentication") == "kerberos",
    )
    if kerberos and policy == "HTTP_ONLY":
        raise ConfigError(
            f"{location.text} asks for Kerberos, and its WebHDFS has no HTTPS (dfs.http.policy): everybody could read tokens; "
            "have HTTPS turned on, or copy files by `hdfs dfs`"
        )
    secure = policy == "HTTPS_ONLY" or (kerberos and policy == "HTTP_AND_HTTPS")
    key = "dfs.namenode.https-address" if secure else "dfs.namenode.http-address"
    port = 9871 if secure else 9870

    def web(suffix: str, rpc: str) -> str:
        """The web address of the NameNode whose other address is `rpc`, which says the host where the web's does not."""
        host = rpc.partition(":")[0]
        address = settings.get(key + suffix, f"{host}:{port}" if host else "")
        return address.replace("0.0.0.0:", f"{host}:") if host else address

    names = [name.strip() for name in settings.get(f"dfs.ha.namenodes.{service}", "").split(",") if name.strip()]
    suffixes = [f".{service}.{name}" for name in names]
    found = [web(suffix, settings.get(f"dfs.namenode.rpc-address{suffix}", "")) for suffix in suffixes]
    if not names and service == default:
        found = [web("", service)]
    found = [address for address in found if address]
    if not found:
        raise ConfigError(
            f"which WebHDFS serves {location.text} is not known: HADOOP_CONF_DIR={folder} is for hdfs://{default}; {remedy}"
        )
    return replace(location, scheme="swebhdfs" if secure else "webhdfs", authority=";".join(found))


def has_name_services() -> bool:
    """Whether the files in HADOOP_CONF_DIR name an HDFS with several NameNodes."""
    folder = environment("HADOOP_CONF_DIR")
    return bool(folder) and any(key.startswith("dfs.ha.namenodes.") for key in _settings(Path(folder, "hdfs-site.xml")))


def _settings(path: Path) -> dict[str, str]:
    """The settings of a Hadoop configuration file; empty when there is no such file."""
    if not path.is_file():
        return {}
    try:
        properties = xml.etree.ElementTree.parse(path).getroot().iter("property")  # noqa: S314 - of HADOOP_CONF_DIR
        return {one.findtext("name", "").strip(): one.findtext("value", "").strip() for one in properties}
    except xml.etree.ElementTree.ParseError as error:
        raise ConfigError(f"not a Hadoop configuration: {path}: {error}") from None
