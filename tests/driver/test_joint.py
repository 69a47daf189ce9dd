"""The joint model on the driver: what is adopted shard by shard, and what a backup puts back."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mpca import methods
from mpca.driver.joint import JointModel
from mpca.errors import BackupError
from tests.driver.support import hello

X = np.arange(1, 7, dtype=np.float32)


def model() -> JointModel:
    """Six parameters in three shards, and behind them one int64 in two: four words, three and one."""
    said = replace(hello(0).hello, bounds=[0, 2, 4, 6, 9, 10], local={"n": ["int64", [], 8]})
    return JointModel(methods.from_dict({"name": "mpca", "shards": 3}), said)


def test_it_is_complete_when_every_shard_of_the_model_has_come() -> None:
    joint = model()
    for shard in range(3):
        assert not joint.complete
        joint.adopt(shard, X[2 * shard : 2 * shard + 2].copy())
    assert joint.complete
    assert joint.vector().tolist() == X.tolist()
    assert joint.trajectory().tolist() == [0.0] * 6
    assert joint.versions() == [0, 0, 0]


def test_local_tensors_count_once_the_last_of_their_shards_has_come() -> None:
    joint = model()
    data = (123456789012345).to_bytes(8, "little")
    words = np.frombuffer(data, "<u2").astype(np.float32)  # 16 bits an element
    joint.adopt(3, words[:3])
    assert joint.layout.local["n"][2] == bytes(8)
    joint.adopt(4, words[3:])
    assert joint.layout.local["n"][2] == data
    assert [(shard, part.tolist()) for shard, part in joint.local_parts()] == [
        (3, words[:3].tolist()),
        (4, words[3:].tolist()),
    ]
    assert not joint.complete, "they are no shards of the model"


def test_a_backup_of_the_same_shards_goes_on_at_their_versions_and_of_others_at_the_least() -> None:
    joint, trajectory = model(), -X
    joint.restore(X, trajectory, [7, 5, 6])
    assert joint.versions() == [7, 5, 6]
    assert joint.vector().tolist() == X.tolist()
    assert joint.trajectory().tolist() == trajectory.tolist()
    assert joint.complete
    other = model()
    other.restore(X, trajectory, [9, 4])
    assert other.versions() == [4, 4, 4]


def test_x0_and_local_tensors_go_over_into_other_shards() -> None:
    joint = model()
    for shard, piece in enumerate((X[:2], X[2:4], X[4:], np.array([7, 0, 0], np.float32), np.array([1], np.float32))):
        joint.adopt(shard, piece)
    said = replace(hello(0).hello, bounds=[0, 1, 2, 4, 6, 8, 10], local={"n": ["int64", [], 8]})
    there, gone = weakref.ref(joint.state(0).x), []

    def room(elements: int) -> np.ndarray:
        gone.append(there() is None)
        return np.empty(elements, np.float32)

    other = JointModel(methods.from_dict({"name": "mpca", "shards": 4}), said, room)
    joint.begin_again(other)
    assert gone == [True] * 4, "the old shards are freed before the new ones are made"
    assert [state.x.tolist() for state in other.states] == [[1.0], [2.0], [3.0, 4.0], [5.0, 6.0]]
    assert (other.versions(), other.trajectory().tolist()) == ([0] * 4, [0.0] * 6)
    assert [(shard, part.tolist()) for shard, part in other.local_parts()] == [(4, [7.0, 0.0]), (5, [0.0, 1.0])]


def test_a_backup_of_a_larger_model_is_taken_as_well() -> None:
    rows = [["weight", [500, 2], "parameter", 0]]
    said = replace(hello(0, layout=rows).hello, bounds=[0, 400, 800, 1000], parameters=1000)
    joint = JointModel(methods.from_dict({"name": "mpca", "shards": 3}), said)
    joint.restore(np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32), [2, 2, 1])
    assert joint.vector().tolist() == list(range(1000))


@pytest.mark.parametrize(("elements", "parameters"), [(5, 6), (7, 6), (6, 5), (6, 7)])
def test_a_backup_of_another_model_is_refused_with_both_sizes(elements: int, parameters: int) -> None:
    joint = model()
    with pytest.raises(BackupError, match=rf"it has {elements} elements \({parameters} in parameters\).*has 6 \(6\)"):
        joint.restore(np.zeros(elements, np.float32), np.zeros(parameters, np.float32), [1, 1, 1])


def test_a_mean_is_merged_into_its_own_shard() -> None:
    joint = model()
    for shard in range(3):
        joint.adopt(shard, X[2 * shard : 2 * shard + 2].copy())
    merged = joint.merge(1, np.float32([3.0, 8.0]))
    assert joint.state(1) is merged
    assert merged.x.tolist() == [3.0, 8.0], "the first exchange takes the mean itself: beta is 1"
    assert joint.versions() == [0, 1, 0]
    assert joint.vector().tolist() == [1.0, 2.0, 3.0, 8.0, 5.0, 6.0]


def in_a_file(elements: int) -> np.ndarray:
    """Like the vectors of a real cluster: their memory is no array's."""
    return np.frombuffer(mmap.mmap(-1, 4 * elements), np.float32, elements)


@pytest.mark.parametrize("room", [None, in_a_file])
def test_exchanges_need_room_for_one_more_shard_and_a_state_that_was_lent_stays_as_it_was(
    room: Callable[[int], np.ndarray] | None,
) -> None:
    bounds = [0, 334, 668, 1000]
    said = replace(hello(0).hello, parameters=1000, bounds=bounds, layout=[["p", [1000], "parameter", 0]])
    method = methods.from_dict({"name": "mpca", "shards": 3})
    joint, rng = JointModel(method, said, room), np.random.default_rng(7)
    for shard in range(3):
        joint.adopt(shard, rng.standard_normal(bounds[shard + 1] - bounds[shard]).astype(np.float32))
    alone = [state._replace(x=state.x.copy(), v=state.v.copy()) for state in joint.states if state is not None]
    lent: list[tuple[object, bytes, bytes]] = []
    homes: list[set[int]] = []
    for cycle in range(60):
        shard = cycle % 3
        mean = rng.standard_normal(alone[shard].x.size).astype(np.float32)
        home = joint.room(shard)
        home[:] = mean
        merged = joint.merge(shard, home)
        alone[shard] = method.merge(alone[shard]._replace(v=alone[shard].v.copy()), mean)
        assert merged.x.tobytes() == alone[shard].x.tobytes()
        assert merged.v.tobytes() == alone[shard].v.tobytes()
        assert joint.outgoing(shard).tobytes() == method.outgoing(alone[shard]).tobytes()
        if cycle == 30:  # an evaluation begins, and keeps the states for as long as it takes
            lent = [(x, x.tobytes()) for x in joint.lend()]
        arrays = [joint.room(shard), *(joint.state(one).x for one in range(3))]
        homes.append({array.__array_interface__["data"][0] for array in arrays})
    assert all(x.tobytes() == then for x, then in lent)
    assert len(lent) == 3
    assert len(set.union(*homes[12:30])) == 4, "three shards and room for one"
    assert len(set.union(*homes[45:])) == 4


def test_a_method_that_makes_new_states_leaves_the_room_as_it_is() -> None:
    said = replace(hello(0).hello, parameters=6, bounds=[0, 6])
    joint = JointModel(methods.from_dict({"name": "sync-easgd"}), said, in_a_file)
    joint.adopt(0, X.copy())
    homes = set()
    for cycle in range(5):
        room = joint.room(0)
        room[:] = cycle
        joint.merge(0, room)
        homes |= {
            one.__array_interface__["data"][0]
            for one in (room, joint.outgoing(0), joint.room(0))
            if one is not joint.state(0).x
        }
    assert len(homes) == 1
