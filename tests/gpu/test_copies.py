"""Copies between a GPU and the slots: what they hold, who waits for them, and the slots' memory, which is pinned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from mpca.agent.cuda import CudaCarrier
from mpca.shm import AgentSegment
from tests.gpu.conftest import Gpu
from tests.gpu.standin import StandIn

pytestmark = pytest.mark.slow
DEVICE = torch.device("cuda", 0)
ELEMENTS = 1 << 20


@pytest.fixture
def segment(gpu: Gpu) -> Iterator[AgentSegment]:
    made = AgentSegment([0, ELEMENTS], agent=0)
    with nullcontext() if gpu.real else StandIn():
        yield made
    made.close()


def keep_busy(gpu: Gpu) -> None:
    """Give the GPU a second's work; the stand-in takes its time without."""
    if gpu.real:
        load = torch.rand(8192, 8192, device=DEVICE) / 8192
        for _ in range(40):
            load = load @ load


def test_a_shard_is_copied_as_it_was_while_training_goes_on(gpu: Gpu, segment: AgentSegment) -> None:
    carrier = CudaCarrier(DEVICE, ELEMENTS, segment.memory)
    model = torch.arange(ELEMENTS, dtype=torch.float32, device=DEVICE)
    out = segment.begin_snapshot(0, 0, 0)
    out.fill(np.nan)
    expected = np.arange(ELEMENTS, dtype=np.float32)
    model += 0  # the first launch of a kernel loads it, and may wait for the GPU
    keep_busy(gpu)
    carrier.outgoing(out, (out.size,))[0].copy_(model)
    delivered = carrier.deliver(out)
    model += 100
    assert delivered is not None
    assert np.isnan(out).all(), "this thread waited for the GPU"
    delivered()
    np.testing.assert_array_equal(out, expected)
    keep_busy(gpu)
    carrier.outgoing(out, (out.size,))[0].copy_(model)
    delivered = carrier.deliver(out)
    carrier.outgoing(out, (out.size,))[0].zero_()  # only when what lies there has left
    assert delivered is not None
    delivered()
    np.testing.assert_array_equal(out, expected + 100)


def test_what_arrives_is_there_for_the_kernels_behind_it_and_its_slot_is_free_before_them(
    gpu: Gpu, segment: AgentSegment
) -> None:
    carrier = CudaCarrier(DEVICE, ELEMENTS, segment.memory)
    data, model = segment.shard_view(0, slot=1), torch.zeros(ELEMENTS, device=DEVICE)
    for turn in range(3):
        data.fill(turn + 1)
        keep_busy(gpu)
        arrived, uploaded = carrier.incoming(data)
        model += arrived
        carrier.taken()
        assert uploaded is not None
        uploaded()
        data.fill(np.nan)  # the executor writes the next one
    assert model.cpu().tolist() == [6.0] * ELEMENTS


def test_slots_are_pinned_for_one_carrier_after_the_other(
    gpu: Gpu, segment: AgentSegment, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a model is cut anew. What cannot be pinned is said, and copied all the same."""
    caplog.set_level(logging.WARNING)
    first = CudaCarrier(DEVICE, ELEMENTS, segment.memory)
    del first
    second = CudaCarrier(DEVICE, ELEMENTS, segment.memory)
    assert not caplog.records
    third = CudaCarrier(DEVICE, ELEMENTS, segment.memory)
    (said,) = [one.getMessage() for one in caplog.records]
    assert said.startswith(f"the parameter slots cannot be pinned for the GPU: bytes={segment.size_bytes}, error=")
    del second  # with it they are not pinned any more
    model = torch.arange(ELEMENTS, dtype=torch.float32, device=DEVICE)
    torch.add(model, 0, out=model)  # no kernel of the user's is told of the error
    out, data = segment.begin_snapshot(0, 0, 0), segment.shard_view(0, slot=1)
    keep_busy(gpu)
    third.outgoing(out, (out.size,))[0].copy_(model)
    delivered = third.deliver(out)
    data.fill(7)
    arrived, uploaded = third.incoming(data)
    for wait in (delivered, uploaded):
        assert wait is not None
        wait()
    np.testing.assert_array_equal(out, np.arange(ELEMENTS, dtype=np.float32))
    assert arrived.cpu().tolist() == [7.0] * ELEMENTS
