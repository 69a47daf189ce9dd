"""Exceptions of HDFS as errors of the operating system, whichever way they came: through a JVM or over WebHDFS."""

from __future__ import annotations

import errno

__all__ = ["as_os_error"]

#: By the class's short name; OSError makes FileNotFoundError, FileExistsError and so on of these numbers.
_NUMBERS = {
    "FileNotFoundException": errno.ENOENT,
    "NoSuchFileException": errno.ENOENT,
    "FileAlreadyExistsException": errno.EEXIST,
    "AlreadyBeingCreatedException": errno.EEXIST,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathIsDirectoryException": errno.EISDIR,
    "AccessControlException": errno.EACCES,
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
    "QuotaByStorageTypeExceededException": errno.EDQUOT,
    "SafeModeException": errno.EROFS,
    "ConnectException": errno.ECONNREFUSED,
    "UnknownHostException": errno.EHOSTUNREACH,
    "NoRouteToHostException": errno.EHOSTUNREACH,
    "ConnectTimeoutException": errno.ETIMEDOUT,
    "SocketTimeoutException": errno.ETIMEDOUT,
}
_FULL = "could only be written to 0 of"


def as_os_error(exception: str, message: str, where: str) -> OSError:
    """The error to raise.

    Args:
        exception: Java class, with or without its package; may be empty.
        message: what it says; the first line is kept.
        where: the path as a person finds it.
    """
    short = exception.rpartition(".")[2]
    first = message.strip().split("\n")[0] or "no message"
    number = errno.ENOSPC if _FULL in message else _NUMBERS.get(short, errno.EIO)
    return OSError(number, f"{short}: {first}" if short else first, where)
