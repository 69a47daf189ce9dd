"""Images on a GPU: the numbers that they become there, and nvJPEG's pixels beside those of the CPU's library."""

from __future__ import annotations

from contextlib import nullcontext
from io import BytesIO

import numpy as np
import pytest
import torch

from mpca.agent.cuda import CudaJpegs
from mpca.data.augment import subtract_mean
from tests.gpu.conftest import Gpu
from tests.gpu.standin import StandIn

pytestmark = pytest.mark.slow
DEVICE = torch.device("cuda", 0)
only_real = pytest.mark.skipif(not torch.cuda.is_available(), reason="nvJPEG needs a GPU")


def test_every_byte_becomes_the_same_number_as_on_the_cpu(gpu: Gpu) -> None:
    pixels = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(3, 16, 16)
    for seed in range(50):
        mean = torch.from_numpy(np.random.default_rng(seed).uniform(0, 255, 3).astype(np.float32))
        here = subtract_mean(pixels, mean, torch.empty(3, 16, 16))
        with nullcontext() if gpu.real else StandIn():
            there = subtract_mean(pixels.to(DEVICE), mean.to(DEVICE), torch.empty(3, 16, 16, device=DEVICE)).cpu()
        assert torch.equal(here, there)


def photographs(count: int, height: int = 256, width: int = 341, subsampling: str = "4:4:4") -> list[bytes]:
    """JPEGs of smooth colours, as photographs are; of 8 x 8 blocks of noise two libraries may differ by more."""
    Image = pytest.importorskip("PIL.Image")
    coarse = np.random.default_rng(1).uniform(0, 255, (count, 3, 8, 8)).astype(np.float32)
    smooth = torch.nn.functional.interpolate(torch.from_numpy(coarse), size=(height, width), mode="bicubic")
    jpegs = []
    for one in smooth.clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy():
        written = BytesIO()
        Image.fromarray(one).save(written, "JPEG", quality=90, subsampling=subsampling)
        jpegs.append(written.getvalue())
    return jpegs


@only_real
@pytest.mark.parametrize(("subsampling", "mean", "most"), [("4:4:4", 0.1, 2), ("4:2:0", 2.0, 16)])
def test_nvjpeg_gives_nearly_the_pixels_of_the_cpu_in_their_order(subsampling: str, mean: float, most: int) -> None:
    """On an H100 equal ones, where each pixel has a colour. With a colour for four pixels, which each library fills in its own
    way, they were 1.3 to 1.5 apart in the mean, and 11 at most."""
    io = pytest.importorskip("torchvision.io")
    jpegs = photographs(9, subsampling=subsampling)
    views = CudaJpegs(DEVICE)(jpegs, lambda number, image: image[:, number : number + 224, :224].flip(-1))
    assert (views.shape, views.dtype, views.device.type) == ((9, 3, 224, 224), torch.uint8, "cpu")
    for number, (one, view) in enumerate(zip(jpegs, views, strict=True)):
        expected = io.decode_jpeg(torch.frombuffer(bytearray(one), dtype=torch.uint8), io.ImageReadMode.RGB)
        far = (expected[:, number : number + 224, :224].flip(-1).int() - view.int()).abs()
        assert far.float().mean() < mean
        assert far.max() <= most


@only_real
def test_a_grey_jpeg_has_three_equal_channels() -> None:
    io = pytest.importorskip("torchvision.io")
    grey = io.encode_jpeg(torch.arange(64, dtype=torch.uint8).reshape(1, 8, 8)).numpy().tobytes()
    (view,) = CudaJpegs(DEVICE)([grey], lambda number, image: image)
    assert torch.equal(view[0], view[1])
    assert torch.equal(view[0], view[2])


@only_real
def test_what_is_no_jpeg_is_refused_and_the_next_call_is_not() -> None:
    jpegs, decoder = photographs(3), CudaJpegs(DEVICE)
    with pytest.raises(RuntimeError):
        decoder([jpegs[0], b"\xff\xd8\xff" + bytes(500), jpegs[1]], lambda number, image: image)
    assert decoder(jpegs, lambda number, image: image).shape == (3, 3, 256, 341)


@only_real
def test_images_come_whole_while_the_gpu_trains(gpu: Gpu) -> None:
    """The training stream is full of work; the decoder waits for its own stream, and gives what it gave alone."""
    jpegs, decoder = photographs(32), CudaJpegs(DEVICE)
    alone = decoder(jpegs, lambda number, image: image)
    load = torch.rand(4096, 4096, device=DEVICE) / 4096
    for _ in range(10):
        for _ in range(20):
            load = load @ load
        assert torch.equal(decoder(jpegs, lambda number, image: image), alone)
