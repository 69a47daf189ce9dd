"""What the paper does to images before a model sees them (section 6.2): crops, flips and channel means.

CIFAR-10: mean and flip; in training also 4 black pixels on all sides, and a random 32 x 32 patch of the result. ImageNet: mean,
flip, and a random 224 x 224 patch of the image whose shorter edge measures 256, in training and in testing; `centre_view` is
for the usual test on the centre. Functions are pure: chance comes from the generator that is passed in. They use numpy alone,
so that processes that only decode need no torch. Not for reading, decoding or scaling (`decode.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["centre_patch", "centre_view", "flip", "random_patch", "random_patches", "random_view", "subtract_mean"]

Pixels = npt.NDArray[np.uint8]


def subtract_mean(images: Any, mean: Any, out: Any = None) -> Any:
    r"""Pixels less their channel's mean, in units of the full range: :math:`(p - \bar p) / 255`.

    The paper names no scale. With pixels in 0..255, a net without BatchNorm and with He's initialisation gives logits in the
    thousands (VGG-A: a loss of 2763 before the first update). With 0..1 it begins near chance (6.7; ln 1000 = 6.9).

    Args:
        images: uint8[..., c, h, w], an array or a tensor on any device.
        mean: float32[c] of the same kind and device, in 0..255.
        out: float32[..., c, h, w] of the same kind and device, for the result; None for new memory.

    Returns:
        float32[..., c, h, w], the same numbers on all devices.
    """
    # On a GPU torch multiplies by 1/255 in place of dividing by a number; by a tensor there it divides.
    full = 255 if isinstance(mean, np.ndarray) else mean.new_full((), 255)
    if out is None:
        return (images - mean.reshape(-1, 1, 1)) / full
    out[...] = images
    out -= mean.reshape(-1, 1, 1)
    out /= full
    return out


def flip(images: Pixels, generator: np.random.Generator) -> Pixels:
    """Mirror each image of uint8[n, c, h, w] left to right with a chance of one half."""
    flipped, mirrored = images.copy(), generator.random(len(images)) < 0.5
    flipped[mirrored] = images[mirrored][..., ::-1]
    return flipped


def random_patches(images: Pixels, generator: np.random.Generator, padding: int = 4) -> Pixels:
    """A patch of each image's own size, anywhere in the image with `padding` black pixels around it.

    Black is the pixel value 0, before the mean is subtracted.

    Args:
        images: uint8[n, c, h, w].
    """
    count, channels, height, width = images.shape
    padded = np.zeros((count, channels, height + 2 * padding, width + 2 * padding), dtype=np.uint8)
    padded[:, :, padding : padding + height, padding : padding + width] = images
    patches = np.empty_like(images)
    corners = generator.integers(2 * padding + 1, size=(2, count))
    for patch, image, top, left in zip(patches, padded, *corners.tolist(), strict=True):
        patch[:] = image[:, top : top + height, left : left + width]
    return patches


def random_view(image: Pixels, generator: np.random.Generator, size: int = 224, out: Pixels | None = None) -> Pixels:
    """Cut a random patch out of one decoded image, uint8[h, w, 3], and mirror it with a chance of one half.

    Returns:
        uint8[3, size, size]; it is `out`, if that is given.

    Raises:
        ValueError: the image is smaller than the patch.
    """
    top, left, mirrored = random_patch(image.shape[0], image.shape[1], generator, size)
    patch = image[top : top + size, left : left + size]
    return _planes(patch[:, ::-1] if mirrored else patch, out)


def centre_view(image: Pixels, size: int = 224, out: Pixels | None = None) -> Pixels:
    """Cut the patch in the middle out of one decoded image, uint8[h, w, 3], without mirroring.

    Returns:
        uint8[3, size, size]; it is `out`, if that is given.

    Raises:
        ValueError: the image is smaller than the patch.
    """
    top, left = centre_patch(image.shape[0], image.shape[1], size)
    return _planes(image[top : top + size, left : left + size], out)


def random_patch(height: int, width: int, generator: np.random.Generator, size: int) -> tuple[int, int, bool]:
    """Top and left of a random patch of an image, in pixels, and whether it is mirrored: what `random_view` cuts.

    Raises:
        ValueError: the image is smaller than the patch.
    """
    _check_fits(height, width, size)
    return int(generator.integers(height - size + 1)), int(generator.integers(width - size + 1)), generator.random() < 0.5


def centre_patch(height: int, width: int, size: int) -> tuple[int, int]:
    """Top and left of the patch in the middle of an image, in pixels: what `centre_view` cuts.

    Raises:
        ValueError: the image is smaller than the patch.
    """
    _check_fits(height, width, size)
    return (height - size) // 2, (width - size) // 2


def _check_fits(height: int, width: int, size: int) -> None:
    if min(height, width) < size:
        raise ValueError(f"image smaller than its patch: height={height}, width={width}, patch={size}")


def _planes(patch: Pixels, out: Pixels | None) -> Pixels:
    if out is None:
        return np.ascontiguousarray(patch.transpose(2, 0, 1))
    np.copyto(out, patch.transpose(2, 0, 1))
    return out
