"""Turns exceptions of HDFS, from a JVM or from WebHDFS, into errors of the operating system."""

from __future__ import annotations

import errno

__all__ = ["as_os_error"]

#: Short name of the class -> errno. OSError chooses FileNotFoundError, FileExistsError and so on by this number.
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
        message: the exception's message; only the first line is kept.
        where: the path, for people.
    """
    short = exception.rpartition(".")[2]
    first = message.strip().split("\n")[0] or "no message"
    number = errno.ENOSPC if _FULL in message else _NUMBERS.get(short, errno.EIO)
    return OSError(number, f"{short}: {first}" if short else first, where)
