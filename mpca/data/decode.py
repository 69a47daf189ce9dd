"""One image from its bytes: decoded, scaled, upright, in RGB; or refused with the reason. Not for crops: `augment.py`.

The table has images a second on one core, over 60 photographs, measured in turns in one process. The libraries install from
wheels; (*) also needs Debian's libturbojpeg. The row names what scales to a shorter edge of 256, else torch's `interpolate`
does. Columns are sizes of the JPEG: 500 x 375 is ImageNet's mean, 341 x 256 what `mpca ingest` writes and training reads.

    ================================  =========  =========  ===========
    decoder                           500 x 375  341 x 256  1600 x 1200
    ================================  =========  =========  ===========
    simplejpeg 1.9                        611      2157         241
    torchvision 0.29 decode_jpeg          570      1994         119
    imagecodecs 2026.3                    570      2047         129
    PyTurboJPEG 1.8 (*), cv2 area         432      1805         200
    opencv-headless 5.0, cv2 area         419      2089         191
    simplejpeg, Pillow's resize           405      2266         175
    Pillow 13, draft and resize           337      1272         159
    ================================  =========  =========  ===========

All but Pillow are thin wrappers of libjpeg-turbo. simplejpeg is the fastest that scales while it decodes, comes as a wheel, and
is strict: a truncated file is an error, where torchvision and OpenCV fill the rest with grey. PyTurboJPEG 2 refuses Debian 12's
library. cv2's linear resize is faster (750), but aliases.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.data.jpeg_header import JpegHeader, read_header
from mpca.errors import BadImage
from mpca.extras import extras

__all__ = ["MAX_PIXELS", "MAX_SCANS", "checked_header", "decode", "orientation_of"]

Pixels = npt.NDArray[np.uint8]

#: Most pixels that a header may declare. ImageNet's largest image has less than half; a bomb turns kilobytes into gigabytes.
MAX_PIXELS = 50_000_000
#: Most scans of a JPEG. A progressive one has about ten; each further scan costs a pass over all pixels for a few bytes.
MAX_SCANS = 100
#: Most pixels times scans: ten passes over the largest picture, 4 s of a core.
MAX_PASSES = 10 * MAX_PIXELS
#: Most bytes of pixels per byte of a PNG, for pictures above `_PLAIN_PNG`. Photographs have 1 to 5, drawings 100, zlib bombs
#: 1,000: a blank picture of 143 KB and 49 million pixels took 5.4 s of a core.
MAX_INFLATION = 250
_PLAIN_PNG = 16 << 20
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by its colour type

_PNG = b"\x89PNG\r\n\x1a\n"
_ORIENTATION = 0x0112
_LESS_IS_SLOWER = 2  # below 1/2 libjpeg-turbo has no vector code for scaled blocks: 701 images/s at 6/8, 863 at full size


def decode(jpeg: bytes, shorter_edge: int) -> Pixels:
    """Decode an image and scale it, up or down, so that its shorter edge measures `shorter_edge` pixels.

    Accepted: baseline and progressive JPEG in YCbCr, RGB or grey (becomes three equal channels); CMYK and YCCK in Adobe's
    inverted form; a still PNG of at most 8 bits a channel under a JPEG's name, of which ImageNet has one (its transparency is
    dropped). EXIF orientation is applied; an EXIF segment that cannot be read counts as none. Bytes after the end of the
    image, such as further pictures, are ignored.

    Refused: empty and truncated bytes, everything that is neither JPEG nor PNG (text, GIF, WebP), more than 8 bits a channel,
    animations, more than `MAX_PIXELS` pixels (declared, or after scaling), `MAX_SCANS` scans or `MAX_PASSES`, a PNG that
    inflates to `MAX_INFLATION` times its bytes, and damage that the decoder notices. Damage that is still valid code goes
    unnoticed here; a record's checksum finds it.

    Equal bytes give equal pixels. Scaling uses torch, which is imported only when an image needs scaling.

    Returns:
        uint8[h, w, 3], contiguous; the longer edge is rounded down, as torchvision's Resize does.

    Raises:
        BadImage: with the reason.
    """
    header = checked_header(jpeg, shorter_edge)
    if header is None:
        pixels, orientation = _png(jpeg, shorter_edge), 1
    else:
        pixels, orientation = _jpeg(jpeg, shorter_edge), orientation_of(header)
    return np.ascontiguousarray(_upright(_scaled(pixels, shorter_edge), orientation))


def checked_header(jpeg: bytes, shorter_edge: int) -> JpegHeader | None:
    """The header of a JPEG that `decode` would try to decode; None for what begins as a PNG.

    Raises:
        BadImage: with the reason.
    """
    if not jpeg:
        raise BadImage("empty: bytes=0")
    if jpeg.startswith(_PNG):
        return None
    if not jpeg.startswith(b"\xff\xd8\xff"):
        raise BadImage(f"neither JPEG nor PNG: begins with {jpeg[:8]!r}, bytes={len(jpeg)}")
    header = read_header(jpeg)
    _check_size(header.height, header.width, header.precision, shorter_edge)
    if header.scans > MAX_SCANS or header.scans * header.height * header.width > MAX_PASSES:
        raise BadImage(
            f"too many scans: scans={header.scans}, height={header.height}, width={header.width}, "
            f"limit={MAX_SCANS} and {MAX_PASSES} pixels in all"
        )
    return header


def _jpeg(jpeg: bytes, shorter_edge: int) -> Pixels:
    with extras():
        import simplejpeg
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(
            jpeg, "RGB", min_height=shorter_edge, min_width=shorter_edge, min_factor=_LESS_IS_SLOWER
        )
    except ValueError as error:
        word = "truncated" if "remature end" in str(error) else "damaged"
        raise BadImage(f"{word}: {error}, bytes={len(jpeg)}") from None
    return pixels


def _check_size(height: int, width: int, bits: int, shorter_edge: int) -> None:
    if not height or not width:
        raise BadImage(f"declares no pixels: height={height}, width={width}")
    if height * width > MAX_PIXELS:
        raise BadImage(f"too large: height={height}, width={width}, limit={MAX_PIXELS} pixels")
    if shorter_edge**2 * max(height, width) > MAX_PIXELS * min(height, width):  # a line of 1 x 60,000 would become 4 billion
        raise BadImage(f"too narrow: height={height}, width={width}, scaled above {MAX_PIXELS} pixels")
    if bits > 8:
        raise BadImage(f"more than 8 bits a channel: bits={bits}")


def orientation_of(header: JpegHeader) -> int:
    """EXIF's orientation, 1 to 8; 1 is upright, and what no EXIF says."""
    if not header.exif:
        return 1
    with extras():
        from PIL import Image

    parsed = Image.Exif()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed.load(header.exif)
            found = parsed.get(_ORIENTATION, 1)
    except Exception:  # damaged EXIF makes Pillow raise nearly anything; the pixels may still be good
        return 1
    return found if found in _TURNS else 1


def _png(png: bytes, shorter_edge: int) -> Pixels:
    with extras():
        from PIL import Image

    head = png[16:26].ljust(10, b"\0")  # of the IHDR chunk, which comes first
    height, width, bits = int.from_bytes(head[4:8], "big"), int.from_bytes(head[:4], "big"), head[8]
    _check_size(height, width, bits, shorter_edge)
    inflated = height * ((width * bits * _PNG_CHANNELS.get(head[9], 4) + 7) // 8)
    if inflated > max(_PLAIN_PNG, MAX_INFLATION * len(png)):
        raise BadImage(f"inflates to too much: bytes={len(png)}, of pixels={inflated}, limit={MAX_INFLATION} times")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                if getattr(image, "is_animated", False):
                    raise BadImage("an animation")
                return np.array(image.convert("RGB"))
    except BadImage:
        raise
    except Exception as error:  # damaged bytes make Pillow raise nearly anything
        raise BadImage(f"damaged PNG: {error}, bytes={len(png)}") from None


def _scaled(pixels: Pixels, shorter_edge: int) -> Pixels:
    height, width = pixels.shape[:2]
    shorter = min(height, width)
    if shorter == shorter_edge:
        return pixels
    import torch
    from torch.nn.functional import interpolate

    size = (shorter_edge * height // shorter, shorter_edge * width // shorter)
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    scaled = interpolate(planes, size=size, mode="bilinear", antialias=True)  # a triangle filter as wide as Pillow's
    return scaled[0].permute(1, 2, 0).numpy()


#: EXIF orientation -> function that turns the picture upright.
_TURNS: dict[int, Any] = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: p.transpose(1, 0, 2)[:, ::-1],
    7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
    8: lambda p: p.transpose(1, 0, 2)[::-1],
}


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    turned: Pixels = _TURNS[orientation](pixels)
    return turned
