"""Decoding: right pixels, and for every file of the bad corpus a refusal with its reason."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mpca.data.decode import MAX_SCANS, decode
from mpca.data.jpeg_header import read_header
from mpca.errors import BadImage

HEIGHT, WIDTH = 240, 320


def picture(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Smooth, and unlike itself in every corner: what JPEG keeps to a few grey levels."""
    down, right = np.mgrid[0:height, 0:width]
    planes = (right * 255 / (width - 1), down * 255 / (height - 1), (right + 2 * down) * 255 / (width + 2 * height - 3))
    return np.stack(planes, axis=-1).astype(np.uint8)


def encoded(pixels: np.ndarray, kind: str = "JPEG", mode: str = "RGB", **settings) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **({"quality": 95} if kind == "JPEG" else {}), **settings)
    return out.getvalue()


JPEG = encoded(picture())


def frame(jpeg: bytes, precision: int = 8, height: int = HEIGHT, width: int = WIDTH) -> bytes:
    """The same JPEG with another precision and size declared."""
    at = jpeg.index(b"\xff\xc0") + 4
    return jpeg[:at] + struct.pack(">BHH", precision, height, width) + jpeg[at + 5 :]


def many_scans() -> bytes:
    """A progressive JPEG whose last scan is there hundreds of times."""
    jpeg = encoded(picture(), progressive=True)
    last = jpeg.rindex(b"\xff\xda")
    return jpeg[:-2] + jpeg[last:-2] * MAX_SCANS + jpeg[-2:]


def difference(one: np.ndarray, other: np.ndarray) -> int:
    assert one.shape == other.shape
    assert one.dtype == other.dtype == np.uint8
    return int(np.abs(one.astype(int) - other).max())


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("baseline", JPEG),
        ("progressive", encoded(picture(), progressive=True)),
        ("cmyk", encoded(picture(), mode="CMYK")),
        ("trailing bytes", JPEG + b"\0trailing" * 100),
        ("another picture behind it", JPEG + encoded(picture()[::-1])),
        ("png", encoded(picture(), "PNG")),
        ("transparent png", encoded(picture(), "PNG", mode="RGBA")),
    ],
)
def test_what_is_converted_gives_the_picture(name: str, data: bytes) -> None:
    assert difference(decode(data, HEIGHT), picture()) <= 4, name


def test_inverted_ycck_is_what_pillow_makes_of_it() -> None:
    cmyk = encoded(picture(), mode="CMYK")
    at = cmyk.index(b"Adobe") + 11  # its transform flag: 2 says that the first three channels are YCC
    ycck = cmyk[:at] + b"\x02" + cmyk[at + 1 :]
    theirs = np.asarray(Image.open(io.BytesIO(ycck)).convert("RGB"))
    assert difference(decode(ycck, HEIGHT), theirs) <= 2


def test_grey_becomes_three_equal_channels() -> None:
    pixels = decode(encoded(picture(), mode="L"), HEIGHT)
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    assert (pixels == pixels[:, :, :1]).all()


@pytest.mark.parametrize("edge", [60, 100, 120, 500])
def test_the_shorter_edge_is_as_asked_and_the_pixels_are_pillows(edge: int) -> None:
    for turned in (picture(), picture().transpose(1, 0, 2)):
        pixels = decode(encoded(turned), edge)
        long = int(edge * WIDTH / HEIGHT)
        assert pixels.shape == ((edge, long, 3) if turned.shape[0] == HEIGHT else (long, edge, 3))
        assert pixels.flags.c_contiguous
        size = (pixels.shape[1], pixels.shape[0])
        theirs = np.asarray(Image.fromarray(turned).resize(size, Image.Resampling.BILINEAR))
        assert difference(pixels, theirs) <= 6, "the decoder's own scaling moves a pixel by a little more than a level"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_exif_is_applied(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    # Pillow's own transposition undone, so that every turned file shows the same picture
    undone = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # orientation -> Image.Transpose that makes the stored pixels
    stored = picture() if orientation == 1 else np.asarray(Image.fromarray(picture()).transpose(undone[orientation]))
    data = encoded(stored, exif=exif)
    assert difference(decode(data, HEIGHT), picture()) <= 4
    broken = data.replace(b"Exif\0\0MM\0*", b"Exif\0\0??\0*").replace(b"Exif\0\0II*\0", b"Exif\0\0??*\0")
    assert broken != data
    assert difference(decode(broken, HEIGHT), stored) <= 4, "an EXIF that cannot be read turns nothing"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "^empty: bytes=0"),
        (JPEG[: len(JPEG) // 2], r"^truncated: .*bytes=\d+"),
        (JPEG[:-2], "^truncated"),
        (JPEG[:300], "^truncated in its header"),
        (b"\xff\xd8\xff", "^truncated in its header: bytes=3"),
        (b"\xff\xd8\xff\xd9\xff\xd9", "^has no pixels"),
        (b"\xff\xd8\xff\xe0\x00\x10" + b"text " * 20, "^damaged header: no segment begins at byte 20"),
        (b"this is a text\n" * 9, "^neither JPEG nor PNG: begins with b'this is '"),
        (encoded(picture(), "GIF"), "^neither JPEG nor PNG: begins with b'GIF87a"),
        (frame(JPEG, precision=12), "^more than 8 bits a channel: bits=12"),
        (frame(JPEG, height=60000, width=60000), "^too large: height=60000, width=60000, limit=50000000 pixels"),
        (frame(JPEG, height=0), "^declares no pixels: height=0"),
        (frame(JPEG, height=7000, width=7000), "^truncated: .*premature end"),
        (frame(JPEG, height=1, width=65000), "^too narrow: height=1, width=65000"),
        (many_scans(), r"^too many scans: scans=1\d\d, .*limit=100 "),
    ],
)
def test_what_is_refused_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=reason):
        decode(data, 256)


def test_pngs_that_are_no_single_byte_pictures_are_refused() -> None:
    frames = [Image.fromarray(picture()), Image.fromarray(picture()[::-1].copy())]
    animated = io.BytesIO()
    frames[0].save(animated, "PNG", save_all=True, append_images=frames[1:])
    sixteen = io.BytesIO()
    Image.fromarray(picture()[:, :, 0].astype(np.uint16) * 257).save(sixteen, "PNG")
    whole = encoded(picture(), "PNG")
    for data, reason in (
        (animated.getvalue(), "^an animation"),
        (sixteen.getvalue(), "bits=16"),
        (whole[:900], "^damaged PNG"),
        (whole[:16] + struct.pack(">II", 60000, 60000) + whole[24:], "^too large"),
    ):
        with pytest.raises(BadImage, match=reason):
            decode(data, 256)


def blank_png(height: int, width: int) -> bytes:
    """A white picture: a thousand bytes of pixels for each of its own."""
    rows = zlib.compress((b"\0" + b"\xff" * (3 * width)) * height, 9)
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    framed = (struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def test_a_png_that_inflates_to_a_thousand_times_its_bytes_is_refused_by_its_header() -> None:
    bomb = blank_png(7000, 7000)
    assert len(bomb) < 200_000
    with pytest.raises(BadImage, match=r"^inflates to too much: bytes=1\d{5}, of pixels=147000000, limit=250 times"):
        decode(bomb, 256)
    assert decode(blank_png(1000, 1000), 1000).min() == 255, "a small one costs nothing"


def test_passes_over_a_large_picture_are_counted_by_its_header() -> None:
    jpeg = encoded(picture(), progressive=True)
    at = jpeg.index(b"\xff\xc2") + 4
    large = jpeg[:at] + struct.pack(">BHH", 8, 7000, 7000) + jpeg[at + 5 :]
    scans = jpeg.count(b"\xff\xda")
    assert decode(jpeg, 256).shape[0] == 256
    more = jpeg.rindex(b"\xff\xda")
    with pytest.raises(BadImage, match=rf"^too many scans: scans={scans + 2}, height=7000, width=7000"):
        decode(large[:-2] + large[more:-2] * 2 + large[-2:], 256)


@settings(max_examples=150)
@given(st.data())
def test_damaged_bytes_are_decoded_or_refused_and_nothing_else(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([SMALL, SMALL_PROGRESSIVE, SMALL_EXIF, SMALL_PNG]))
    damaged = bytearray(source[: data.draw(st.integers(0, len(source)))])
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(source)), st.integers(0, 255)), max_size=4)):
        damaged[at : at + 1] = bytes([value])
    try:
        pixels = decode(bytes(damaged), 16)
    except BadImage:
        return
    assert min(pixels.shape[:2]) == 16


_turned = Image.Exif()
_turned[0x0112] = 6
SMALL = encoded(picture(24, 32))
SMALL_PROGRESSIVE = encoded(picture(24, 32), progressive=True)
SMALL_EXIF = encoded(picture(24, 32), exif=_turned)
SMALL_PNG = encoded(picture(24, 32), "PNG")


def test_pixels_are_the_same_in_every_process() -> None:
    program = (
        "import sys, zlib; from mpca.data.decode import decode; data = sys.stdin.buffer.read();"
        "print(*(zlib.crc32(decode(data, edge)) for edge in (100, 240)))"
    )
    run = subprocess.run([sys.executable, "-c", program], input=JPEG, capture_output=True, check=True)
    assert run.stdout.split() == [str(zlib.crc32(decode(JPEG, edge))).encode() for edge in (100, 240)]


def test_an_image_that_needs_no_scaling_needs_no_torch() -> None:
    program = (
        "import sys; from mpca.data.decode import decode; decode(sys.stdin.buffer.read(), 240); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], input=JPEG, capture_output=True, check=True)
    assert run.stdout == b"False\n"


def test_a_header_counts_scans_and_keeps_exif() -> None:
    assert read_header(JPEG).scans == 1
    progressive = encoded(picture(), progressive=True)
    assert 2 <= read_header(progressive).scans <= 20
    assert read_header(SMALL_EXIF).exif.startswith(b"Exif\0\0")
    assert (read_header(SMALL).height, read_header(SMALL).width, read_header(SMALL).precision) == (24, 32, 8)
