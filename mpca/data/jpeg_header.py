"""The header of a JPEG: size, precision, the largest number of scans that may follow, and EXIF.

A walk over the segments takes some microseconds. A search of all bytes for a mark takes ten times as long, and the library's
own header call gives neither precision nor scans nor EXIF. Not for pixels: `decode.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mpca.errors import BadImage

__all__ = ["JpegHeader", "read_header"]

_START_OF_SCAN, _END, _EXIF_SEGMENT = 0xDA, 0xD9, 0xE1
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the rest of the row are tables
_ONE_SCAN_FRAMES = {0xC0, 0xC1}  # sequential, Huffman coded: one scan, if it has all components in it
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """Facts from a JPEG's segments before its first scan."""

    height: int
    width: int
    precision: int  # bits a channel
    scans: int  # upper bound; counted only where there may be more than one
    exif: bytes  # the EXIF segment's content, or empty


def read_header(jpeg: bytes) -> JpegHeader:
    """Read the header of bytes that begin as a JPEG does.

    Raises:
        BadImage: the bytes end inside of the header, or are not segments.
    """
    at, exif, frame = 2, b"", (0, 0, 0, 0, 0)
    while True:
        if at + 4 > len(jpeg):
            raise BadImage(f"truncated in its header: bytes={len(jpeg)}")
        if jpeg[at] != 0xFF:
            raise BadImage(f"damaged header: no segment begins at byte {at}")
        mark = jpeg[at + 1]
        if mark == 0xFF:  # fill byte
            at += 1
            continue
        if mark == _END:
            raise BadImage("has no pixels: it ends after its header")
        if mark in _NO_LENGTH:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", jpeg, at + 2)
        body = jpeg[at + 4 : at + 2 + length]
        if length < 2 or len(body) != length - 2:
            raise BadImage(f"truncated in its header: bytes={len(jpeg)}")
        if mark == _EXIF_SEGMENT and body.startswith(b"Exif\0\0"):
            exif = exif or body
        elif mark in _FRAMES and len(body) >= 6:
            frame = (mark, *struct.unpack_from(">BHHB", body))
        elif mark == _START_OF_SCAN:
            return _header(jpeg, at, body, exif, frame)
        at += 2 + length


def _header(jpeg: bytes, at: int, scan: bytes, exif: bytes, frame: tuple[int, ...]) -> JpegHeader:
    kind, precision, height, width, components = frame
    one = kind in _ONE_SCAN_FRAMES and scan[:1] == bytes([components])
    # Coded pixels never hold a mark, so this counts all scans; bytes inside of segments may add some.
    return JpegHeader(height, width, precision, 1 if one else jpeg.count(b"\xff\xda", at), exif)
