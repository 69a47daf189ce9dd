"""One set of promises, kept by every store; and the faults of the in-memory one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mpca.errors import BackupError
from mpca.storage import Holder, LocalStore, RunLock, Store
from tests.support.memory_store import Crash, MemoryStore


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "root") if request.param == "local" else MemoryStore()


def test_what_is_written_is_read(store: Store) -> None:
    store.write("a/b/c", b"123")
    store.sync("a/b/c")
    store.sync("a/b")
    assert store.read("a/b/c") == b"123"
    assert store.size("a/b/c") == 3
    store.write("a/b/c", b"4", memoryview(b"56"), b"", b"7")
    assert store.read("a/b/c") == b"4567"
    store.write("a/b/c", b"")
    assert store.read("a/b/c") == b""
    store.write("a/b/c")
    assert store.size("a/b/c") == 0
    assert store.names("a") == ["b"]
    assert store.exists("a/b")
    assert not store.exists("a/x")
    assert "a/b/c" in store.describe("a/b/c")


@pytest.mark.parametrize(
    ("offset", "length", "data"), [(0, 5, b"01234"), (3, 4, b"3456"), (8, 5, b"89"), (10, 1, b""), (99, 1, b""), (4, 0, b"")]
)
def test_a_range_ends_where_the_file_does(store: Store, offset: int, length: int, data: bytes) -> None:
    store.write("a/b", b"0123456789")
    assert store.read_range("a/b", offset, length) == data


def test_missing_things_are_missing(store: Store) -> None:
    assert store.names("nowhere") == []
    with pytest.raises(FileNotFoundError):
        store.read_range("nowhere", 0, 1)
    with pytest.raises(FileNotFoundError):
        store.read("nowhere")
    with pytest.raises(FileNotFoundError):
        store.size("nowhere")
    with pytest.raises(FileNotFoundError):
        store.rename("nowhere", "there")
    store.delete("nowhere")


def test_only_one_makes_an_exclusive_file(store: Store) -> None:
    store.create_exclusive("d/lock", b"one")
    with pytest.raises(FileExistsError):
        store.create_exclusive("d/lock", b"two")
    assert store.read("d/lock") == b"one"


def test_rename_moves_files_and_folders_but_never_replaces(store: Store) -> None:
    store.write("t/x", b"1")
    store.write("t/y", b"2")
    store.write("f", b"3")
    store.rename("t", "u/v")
    assert store.names("u/v") == ["x", "y"]
    assert not store.exists("t")
    store.write("t/x", b"4")
    with pytest.raises(FileExistsError):
        store.rename("t", "u/v")
    with pytest.raises(FileExistsError):
        store.rename("f", "t/x")
    assert store.read("t/x") == b"4"
    store.rename("f", "t/z")
    assert store.read("t/z") == b"3"


def test_only_an_empty_folder_is_removed_as_one(store: Store) -> None:
    store.write("a/b/c", b"1")
    store.rmdir("a/b")
    assert store.read("a/b/c") == b"1"
    store.delete("a/b/c")
    store.rmdir("a/b")
    store.rmdir("a/b")
    assert not store.exists("a/b")


def test_delete_takes_a_folder_with_all_in_it(store: Store) -> None:
    store.write("a/b/c", b"1")
    store.write("ab", b"2")
    store.delete("a")
    assert store.names("") == ["ab"]


def test_a_local_path_cannot_leave_its_root(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    for path in ("../x", "a/../../x", "/etc/passwd"):
        with pytest.raises(ValueError, match="leaves the store"):
            store.read(path)


# ---- faults of the in-memory store -----------------------------------------------------------------------------------


def test_a_private_folder_is_made_once_and_not_again_when_it_is_moved_away(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "deep" / "run", private=True)
    store.write("backups/one", b"1")
    assert (tmp_path / "deep" / "run" / "backups").stat().st_mode & 0o777 == 0o700
    (tmp_path / "deep" / "run").rename(tmp_path / "moved")
    for path in ("lock", "backups/two"):
        with pytest.raises(FileNotFoundError):
            store.write(path, b"2")
    assert [one.name for one in (tmp_path / "deep").iterdir()] == []
    (tmp_path / "moved").rename(tmp_path / "deep" / "run")
    store.write("backups/two", b"2")
    assert store.read("backups/two") == b"2"


def test_a_torn_write_leaves_half_and_a_dead_writer() -> None:
    store = MemoryStore({1: "torn"})
    store.write("a", b"1234")
    with pytest.raises(Crash):
        store.write("b", b"1234")
    with pytest.raises(Crash):
        store.read("a")
    store.reboot()
    assert store.read("b") == b"12"
    assert store.fired == [(1, "torn", "write b")]


def test_a_full_disk_fails_one_write_and_the_writer_lives() -> None:
    store = MemoryStore({0: "full"})
    with pytest.raises(OSError, match="no space") as caught:
        store.write("a", b"1234")
    assert caught.value.errno == errno.ENOSPC
    store.write("a", b"5")
    assert store.read("a") == b"5"


def test_a_lost_reply_is_an_error_of_something_done() -> None:
    store = MemoryStore({1: "lost"})
    store.write("a", b"1")
    with pytest.raises(OSError, match="reply lost"):
        store.rename("a", "b")
    assert store.read("b") == b"1"


@pytest.mark.parametrize("renames_kept", [True, False])
def test_a_crash_of_the_machine_loses_what_was_not_synced(renames_kept: bool) -> None:
    store = MemoryStore()
    store.write("d/a", b"1")
    store.sync("d/a")
    store.write("d/b", b"2")
    store.rename("d/a", "d/c")
    store.reboot(machine=True, renames_kept=renames_kept)
    assert store.paths() == (["d/c"] if renames_kept else ["d/a"])


# ---- the lock --------------------------------------------------------------------------------------------------------


def test_one_of_two_drivers_gets_the_lock_and_the_other_hears_its_name(store: Store) -> None:
    assert RunLock(store, "r/lock").claim("app-1", alive=lambda owner: True) == 1
    with pytest.raises(BackupError, match=r"owner=app-1, term=1; stop it"):
        RunLock(store, "r/lock").claim("app-2", alive=lambda holder: holder.owner == "app-1")


def test_a_dead_owner_is_taken_over_from_and_then_refused(store: Store) -> None:
    first, second = RunLock(store, "r/lock"), RunLock(store, "r/lock")
    first.claim("app-1", alive=lambda owner: True)
    first.check()
    assert second.claim("app-2", alive=lambda owner: False) == 2
    second.check()
    with pytest.raises(BackupError, match="owner=app-2, term=2"):
        first.check()
    first.release()  # not ours any more: nothing happens
    second.check()


def test_terms_rise_over_releases(store: Store) -> None:
    for term in (1, 2, 3):
        lock = RunLock(store, "lock")
        assert lock.claim("app", alive=lambda owner: True) == term
        lock.release()
    lock = RunLock(store, "lock")
    lock.claim("app", alive=lambda owner: True)
    store.delete("lock")
    with pytest.raises(BackupError, match="owner=nobody"):
        lock.check()


def test_a_withdrawn_lock_leaves_all_as_it_was(store: Store) -> None:
    RunLock(store).claim("killed", alive=lambda holder: True)
    names, text = store.names(""), store.read("lock")
    second = RunLock(store)
    assert second.claim("app", alive=lambda holder: False) == 2
    assert store.names("") == ["lock", "lock.term-1"]
    second.withdraw()
    assert (store.names(""), store.read("lock")) == (names, text)
    assert RunLock(store).claim("app", alive=lambda holder: False) == 2, "nothing was done under that term"


def test_one_that_cannot_make_its_lock_puts_the_former_one_back() -> None:
    store = MemoryStore()
    RunLock(store).claim("killed", alive=lambda holder: True)
    text = store.read("lock")
    store.faults = {store.operations + 1: "full"}  # after the rename of the former one
    with pytest.raises(OSError, match="no space"):
        RunLock(store).claim("app", alive=lambda holder: False)
    assert store.fired
    assert store.read("lock") == text


def test_storage_that_fails_is_no_other_driver() -> None:
    store = MemoryStore()
    RunLock(store).claim("killed", alive=lambda holder: True)
    store.faults = {store.operations: "full"}  # at the rename
    with pytest.raises(OSError, match="no space"):
        RunLock(store).claim("app", alive=lambda holder: False)
    assert store.fired
    assert store.names("") == ["lock"]


def test_a_term_is_above_what_backups_say(store: Store) -> None:
    assert RunLock(store).claim("app", alive=lambda holder: True, above=6) == 7


def test_a_holder_that_cannot_be_seen_is_believed_and_the_remedy_is_named(store: Store) -> None:
    RunLock(store).claim("app-1", alive=lambda holder: True)
    with pytest.raises(BackupError, match=r"cannot see whether it still runs: .* if it has ended, remove .*lock$"):
        RunLock(store).claim("app-2", alive=lambda holder: None)


def test_foreign_names_beside_the_lock_are_no_terms(store: Store) -> None:
    store.write("lock.term-notes", b"mine")
    lock = RunLock(store)
    assert lock.claim("app", alive=lambda holder: True) == 1
    lock.release()
    assert lock.terms() == [1]


def test_a_lock_torn_in_its_making_belongs_to_nobody() -> None:
    store = MemoryStore()
    store.write("lock", b'{"own')
    assert RunLock(store).claim("app", alive=lambda holder: holder.owner != "") == 2


def test_two_that_take_over_at_once_do_not_both_win() -> None:
    # Both saw the same dead owner; between the look and the rename of the first, the second did it all.
    store = MemoryStore()
    RunLock(store).claim("dead", alive=lambda owner: True)
    second = RunLock(store)

    def meanwhile(holder: Holder) -> bool:
        if holder.owner == "dead" and store.names("") == ["lock"]:
            second.claim("second", alive=lambda owner: False)
        return False

    with pytest.raises(BackupError, match="owner=second"):
        RunLock(store).claim("first", alive=meanwhile)
    second.check()
