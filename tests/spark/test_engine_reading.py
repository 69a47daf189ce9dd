"""An agent is killed in the middle of an epoch: what it had not read is read by the others, as `mpca.data.plan` says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mpca.data.epochs import EpochPart
from mpca.data.ingest import Options, ingest
from mpca.data.plan import Readers
from mpca.data.share import share_of_epoch
from mpca.storage import Backups, LocalStore
from tests.spark.jobs import shared, streamed
from tests.spark.numbered import numbered_pictures

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

RECORDS = 960  # 30 units, of which each of three agents has 10
UNIT, EACH = 32, 10


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("numbered")
    ingest(numbered_pictures(root / "source", RECORDS), str(root / "set"), Options(), processes=1)
    return root / "set"


def read(told, agent: int, incarnation: int = 0) -> list[int]:
    """Labels in the order in which that process was given them."""
    file = told.run.folder / f"labels-{agent}-{told.run.pids[agent, incarnation]}"
    return [int(label) for label in file.read_text().split()]


def test_what_a_killed_agent_had_not_read_is_read_by_the_living_and_its_replacement_reads_on(engine, numbered: Path) -> None:
    def story(run):
        yield lambda: run.data.get((1, 0), [0, 0, 0]) >= [0, 1, 0]
        run.kill_agent(1)
        yield lambda: all(run.data[agent, 0][0] > 0 for agent in (0, 2)) and run.data.get((1, 1), [0])[0] > 0
        run.end()

    own = ("name=imagenet", f"path={numbered}", "crop=32", "shorter_edge=32", "read_ahead=1MiB", "batch_size=4")
    told = engine(streamed, 0.1, sets=tuple(f"data.{one}" for one in own), story=story)
    assert told.ended.exit_code == 0, told.ended.reason

    readers = [Readers.from_dict(one.readers.readers) for one in told.run.orders if one.readers is not None]
    ((lost,), *_) = (one.losses for one in readers)
    assert (lost.agent, lost.epoch) == (1, 0)
    left = EACH - lost.done  # units, dealt in turn to agents 0 and 2
    killed = read(told, 1)
    others = [read(told, 0)[: UNIT * (EACH + -(-left // 2))], read(told, 2)[: UNIT * (EACH + left // 2)]]
    counted = Counter(others[0] + others[1])
    assert set(counted.values()) == {1}, "nothing twice among the living"
    assert set(counted) | set(killed) == set(range(RECORDS)), "the epoch is covered"
    assert len(set(counted) & set(killed)) == len(killed) - UNIT * lost.done, "twice is what was of units not finished"

    assert readers[-1].first(1) == 1, "its replacement begins with the epoch that nobody had begun"
    assert set(read(told, 1, 1)[: UNIT * 4]) != set(killed[: UNIT * 4])
    assert all(one.readers is None for one in told.run.orders[-3:]), "it is told when it changes"

    kept = Backups(LocalStore(told.ended.run_dir), "backups").newest().state.data
    assert [(agent, epoch > 0) for agent, epoch, _ in kept["at"]] == [(0, True), (1, True), (2, True)]
    assert kept["last"] >= 1


def test_a_map_style_data_set_is_dealt_each_epoch_to_those_who_are_there(engine) -> None:
    """Epochs of half a second: the others are through some before the lost agent's process, started anew, is there again."""
    samples = 240

    def story(run):
        yield lambda: run.data.get((1, 0), [0])[0] >= 1
        run.kill_agent(1)
        yield lambda: run.data.get((1, 1), [0])[0] > 0
        back = run.data[1, 1][0]
        yield lambda: all(run.data[agent, agent == 1][0] > back + 3 for agent in range(3))
        run.end()

    told = engine(shared, 0.05, samples, 8, story=story, sets=("cluster.preload=false",))
    assert told.ended.exit_code == 0, told.ended.reason

    readers = [Readers.from_dict(one.readers.readers) for one in told.run.orders if one.readers is not None]
    lost = next(one.losses[0] for one in readers if one.losses)
    back = readers[-1].first(1)
    assert lost.agent == 1
    assert back > max(lost.epoch, lost.last)
    whole: dict[int, list[tuple[EpochPart, list[int]]]] = {}
    for agent, incarnation in ((0, 0), (1, 0), (1, 1), (2, 0)):
        seen, epoch = read(told, agent, incarnation), back if incarnation else 0
        while seen:
            without = [EpochPart(epoch, (0, 2).index(agent), 2)] if agent != 1 else []
            for one in (EpochPart(epoch, agent, 3), *without):
                part = share_of_epoch(samples, one, seed=0, agent=agent, incarnation=incarnation).tolist()
                if seen[: len(part)] == part[: len(seen)]:
                    break
            else:
                raise AssertionError(f"agent {agent} read no share of epoch {epoch}: {seen}")
            if len(seen) >= len(part):
                whole.setdefault(epoch, []).append((one, part))
            seen, epoch = seen[len(part) :], epoch + 1
    among = {epoch: [one.world_size for one, _ in parts] for epoch, parts in whole.items()}
    assert among[0] == [3, 3, 3]
    assert [2, 2] in among.values(), "nobody was away for long enough: this showed nothing"
    assert among[back + 3] == [3, 3, 3], "at the latest: the others may have begun some before they heard"
    for epoch, parts in whole.items():
        if among[epoch] in ([2, 2], [3, 3, 3]):
            assert sorted(number for _, part in parts for number in part) == list(range(samples))

    kept = Backups(LocalStore(told.ended.run_dir), "backups").newest().state.data
    assert all(epoch > back for _, epoch, _ in kept["at"]), "a resumed run goes on from there"
