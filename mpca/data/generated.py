"""Two data sets that are computed, for comparing methods on two cores: no file, no download, and not learnt in a minute.

scikit-learn's digits are learnt in about fifty updates, too few for methods to differ. These take thousands of a batch of 16.

*mixture*: 48,000 training and 4,000 test points of 32 numbers. A class is twelve Gaussian clusters. The 120 centres are drawn
from N(0, 1); around them points have a deviation of 0.9. The best classifier there is, which knows the centres, is wrong for
0.5 % of the points. `mixture_mlp` (7 k parameters) reaches 4.9 % by Adam in 12,000 batches of 64 with a rate that falls to 0,
and a net of the same form with 256 in each layer 2.2 %. With batches of 16 and a constant rate, 10 % takes about 4,000
updates.

*warped digits*: 24,000 training and 4,000 test images of 12 x 12 grey pixels. A digit of a font of 5 x 7 dots is turned,
sheared, scaled, moved and bent; a part of another digit lies across it, and grain over both. A convnet of 131 k parameters
with BatchNorm reaches 8.4 % (2,000 batches of 64, a rate that falls to 0). `warped_convnet` (10 k) reaches 30 % in about 600
updates of 16 by Adam, and 22 % in about 2,000.

Classes are equally frequent, numbers standardised. The seed draws the samples, never the task, so that errors under different
seeds compare. Equal arguments give equal numbers in every process (with the same version of numpy, whose generators draw
them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["GENERATED", "SAMPLES", "mixture", "warped_digits"]

_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]
_Labels = npt.NDArray[np.int64]

_CLASSES = 10
#: Samples by data set and split.
SAMPLES = {
    "mixture": {"train": 48_000, "test": 4_000},
    "warped-digits": {"train": 24_000, "test": 4_000},
}
_SPLITS = ("train", "test")

_DIMENSIONS, _CLUSTERS, _SIGMA = 32, 12, 0.9

_EDGE = 12  # pixels of a warped digit's image
# Deviations: of moves and bends in pixels, of the turn in radians, of the scale's logarithm, of the grain. With these a net of
# 10 k parameters is at 20 % after 3,000 updates; with a bend of 1.2 and a turn of 0.45 it stays above 40 %.
_SHIFT, _TURN, _SHEAR, _SCALE, _BEND, _NOISE = 0.8, 0.3, 0.25, 0.15, 0.7, 0.12
_DOTS = 0.72  # of the font in a pixel
_MEAN, _DEVIATION = 0.199, 0.283  # of the grey values
_ROWS, _COLUMNS, _MARGIN = 7, 5, 2  # of the font, in dots
_FONT = """
.###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ...#. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
"""


def mixture(split: str, seed: int) -> tuple[_Floats, _Labels]:
    """Draw a split of the mixture: float32[n, 32] and int64[n]."""
    centres = np.random.default_rng(11).standard_normal((_CLASSES, _CLUSTERS, _DIMENSIONS), np.float32)
    rng = np.random.default_rng((12, seed, _SPLITS.index(split)))
    labels = _balanced(rng, SAMPLES["mixture"][split])
    points = centres[labels, rng.integers(0, _CLUSTERS, len(labels))]
    points += np.float32(_SIGMA) * rng.standard_normal(points.shape, np.float32)
    points /= np.float32((1 + _SIGMA**2) ** 0.5)
    return points, labels


def warped_digits(split: str, seed: int) -> tuple[_Floats, _Labels]:
    """Draw a split of the warped digits: float32[n, 1, 12, 12] and int64[n]."""
    rng = np.random.default_rng((13, seed, _SPLITS.index(split)))
    labels = _balanced(rng, SAMPLES["warped-digits"][split])
    images = np.concatenate([_draw(rng, labels[first : first + 2000]) for first in range(0, len(labels), 2000)])
    return images.reshape(-1, 1, _EDGE, _EDGE), labels


def _balanced(rng: np.random.Generator, count: int) -> _Labels:
    """Labels in random order, each class as often as the others."""
    return rng.permutation(np.arange(count, dtype=np.int64) % _CLASSES)


def _draw(rng: np.random.Generator, labels: _Labels) -> _Floats:
    """Images, float32[n, 144]."""
    n = len(labels)
    others = (labels + rng.integers(1, _CLASSES, n)) % _CLASSES
    away = rng.uniform(0, 2 * np.pi, n)
    far = np.stack([np.cos(away), np.sin(away)], axis=1) * rng.uniform(6.0, 8.0, (n, 1))
    ink = _warped(rng, labels, np.zeros((n, 2))) + 0.8 * _warped(rng, others, far)
    grey = np.minimum(ink, 1.0) * rng.uniform(0.6, 1.0, (n, 1)) + rng.normal(0, _NOISE, ink.shape)
    return ((grey - _MEAN) / _DEVIATION).astype(np.float32)


def _warped(rng: np.random.Generator, labels: _Labels, offsets: _Doubles) -> _Doubles:
    """Ink at each pixel, float64[n, 144]: for each pixel of the image, where in the font's digit it comes from."""
    n = len(labels)
    at = np.stack(np.meshgrid(np.arange(_EDGE), np.arange(_EDGE)), axis=-1).reshape(1, -1, 2) - (_EDGE - 1) / 2  # x, y
    at = at - (offsets + rng.normal(0, _SHIFT, (n, 2)))[:, None, :]
    turn, shear = rng.normal(0, _TURN, n), rng.normal(0, _SHEAR, n)
    scale = np.exp(rng.normal(0, _SCALE, (n, 2))) * _DOTS
    back = np.empty((n, 2, 2))
    back[:, 0, 0], back[:, 0, 1] = np.cos(turn), np.sin(turn) + shear
    back[:, 1, 0], back[:, 1, 1] = -np.sin(turn), np.cos(turn)
    wave, phase = rng.normal(0, 0.45, (n, 2, 2)), rng.uniform(0, 2 * np.pi, (n, 1, 2))
    bend = rng.normal(0, _BEND, (n, 1, 2)) * np.sin(at @ wave + phase)
    source = (at + bend) @ back.transpose(0, 2, 1) * scale[:, None, :]
    return _ink(labels, source[..., 0] + _COLUMNS / 2 + _MARGIN - 0.5, source[..., 1] + _ROWS / 2 + _MARGIN - 0.5)


def _glyphs() -> _Floats:
    """The font with a margin, float32[10, 11, 9]."""
    rows = [line.split() for line in _FONT.split("\n") if line]
    dots = np.array([[[dot == "#" for dot in row[digit]] for row in rows] for digit in range(_CLASSES)], np.float32)
    return np.pad(dots, ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN)))


def _ink(labels: _Labels, x: Any, y: Any) -> _Doubles:
    """The glyphs between their dots, bilinear. Beyond the margin there is no ink."""
    glyphs = _glyphs()
    x = x.clip(0, glyphs.shape[2] - 1.001)
    y = y.clip(0, glyphs.shape[1] - 1.001)
    left, top = x.astype(np.int64), y.astype(np.int64)
    right, down = x - left, y - top
    digit = labels[:, None]
    above = glyphs[digit, top, left] * (1 - right) + glyphs[digit, top, left + 1] * right
    below = glyphs[digit, top + 1, left] * (1 - right) + glyphs[digit, top + 1, left + 1] * right
    ink: _Doubles = above * (1 - down) + below * down
    return ink


#: Name -> (split, seed) -> samples and labels.
GENERATED: dict[str, Callable[[str, int], tuple[_Floats, _Labels]]] = {"mixture": mixture, "warped-digits": warped_digits}
