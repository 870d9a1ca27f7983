"""What the tier `mooncake-disk` relies on beside a Master with `--root_fs_dir`: one test each.

As in test_mooncake_behaviour: without the adapter, and the name of a failing test says what an
upgrade has changed. What has changed for the better fails here, too, and is welcome.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake.below_fs import below_fs
from tests.support.mooncake.driven import Client, client
from tests.support.mooncake.lab import MIB, Cluster, needs_wheel, until

pytestmark = needs_wheel

SIZE_BYTES = 4 * MIB
"""Of the driven client's registered memory."""
PUT = "config(with_hard_pin=True, group_ids=['g'], data_type=library.ObjectDataType.WEIGHT)"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("mooncake")
    with below_fs(folder) as made:
        yield made


@pytest.fixture(scope="module")
def one(real: Cluster) -> Iterator[Client]:
    with client(real) as made:
        yield made


def put_from(one: Client, key: str, size_bytes: int = SIZE_BYTES) -> object:
    return one(f"store.put_from({key!r}, pointer, {size_bytes}, {PUT})")


def listed(real: Cluster, key: str) -> Path:
    """Its file, once the Master lists it."""
    until("the Master lists its file", lambda: bool(real.entry(key)["disk_values"]))
    return Path(real.entry(key)["disk_values"][0]["file_path"])


def put(real: Cluster, one: Client, key: str) -> Path:
    assert put_from(one, key) == 0
    return listed(real, key)


def cold(real: Cluster, one: Client, key: str) -> Path:
    """Its file, when that is all that is left."""
    path = put(real, one, key)
    host = real.hosts[0].name
    assert one(f"store.batch_replica_clear([{key!r}], {host!r})") == [key]
    return path


def get(one: Client, key: str) -> object:
    return one(f"store.get_into({key!r}, pointer, {SIZE_BYTES})")


def reads(one: Client, key: str) -> None:
    """Its file is read; by one that is held up for longer than its lease, at another time."""
    until("it is read", lambda: get(one, key) == SIZE_BYTES)


def removed(one: Client, key: str) -> bool:
    return one(f"store.batch_remove([{key!r}], False)") == [0]


def test_a_plain_put_of_a_registered_buffer_writes_a_file_and_the_master_lists_it(
    real: Cluster, one: Client
) -> None:
    """With hard pin, group and data type; the name is the key's, in two folders of one letter."""
    assert one("memory.__setitem__(slice(0, 4), b'abcd')") is None
    path = put(real, one, "weights/a/plain")
    entry = real.entry("weights/a/plain")
    assert entry["disk_values"][0]["object_size"] == entry["values"][0]["size_"] == SIZE_BYTES
    assert path.name == "weights_a_plain"
    assert [len(part) for part in path.parts[-3:-1]] == [1, 1]
    assert path.read_bytes()[:4] == b"abcd"
    assert path.stat().st_size == SIZE_BYTES


def test_what_was_put_in_a_session_has_no_file_and_can_be_neither_removed_nor_cleared(
    real: Cluster, one: Client
) -> None:
    """Why nothing is put in sessions beside a tier mooncake-disk."""
    assert one("store.batch_put_session_start(['s'], [1000], config())") == [0]
    assert one("store.batch_put_from_multi_buffer_ranges(['s'],[[pointer]],[[1000]],[[0]])") == [
        1000
    ]
    assert one("store.batch_put_session_end(['s'])") == [0]
    assert real.entry("s")["values"]
    assert not real.entry("s")["disk_values"]
    assert one("store.batch_remove(['s'], False)") == [-703]
    one(f"store.batch_replica_clear(['s'], {real.hosts[0].name!r})")
    assert real.entry("s")["error"] == "REPLICA_IS_NOT_READY"


def test_a_file_is_all_that_is_left_after_a_clear_and_is_not_promoted_by_reading(
    real: Cluster, one: Client
) -> None:
    cold(real, one, "left")
    reads(one, "left")
    ranges = "store.get_into_ranges([pointer], [['left']], [[[0]]], [[[100]]], [[[50]]])"
    until("a range is read", lambda: one(ranges) == [[[50]]])
    with client(real) as other:
        reads(other, "left")
    one("len(store.batch_get_replica_desc(['left']))")
    assert real.entry("left")["values"] == []


def test_an_object_of_which_only_a_file_is_left_cannot_be_copied_into_memory(
    real: Cluster, one: Client
) -> None:
    """Why a rehydration removes it and puts it anew."""
    cold(real, one, "stays")
    host = real.hosts[0].name
    assert one(f"store.create_copy_task('stays', [{host!r}])[1]") != 0
    assert put_from(one, "stays") == 0
    assert real.entry("stays")["values"] == []


def test_a_file_that_is_gone_or_short_is_listed_and_not_read(real: Cluster, one: Client) -> None:
    path = cold(real, one, "gone")
    aside = path.rename(path.with_suffix(".aside"))
    assert get(one, "gone") == -800
    assert real.entry("gone")["disk_values"]
    path.write_bytes(aside.read_bytes()[:1000])
    assert get(one, "gone") == -800


def test_a_file_that_somebody_has_changed_is_read_as_a_success(real: Cluster, one: Client) -> None:
    """Why a file counts only as long as it is the one that was read right."""
    path = cold(real, one, "changed")
    path.write_bytes(b"y" * SIZE_BYTES)
    reads(one, "changed")
    assert one("memory[:3].decode()") == "yyy"


def test_a_removal_leaves_the_file_and_the_next_put_writes_into_it(
    real: Cluster, one: Client
) -> None:
    """Why a right file is moved out of the way before its object is put anew."""
    path = put(real, one, "again")
    inode = path.stat().st_ino
    until("it is removed", lambda: removed(one, "again"))
    assert path.stat().st_size == SIZE_BYTES
    assert put_from(one, "again", 1000) == 0
    assert listed(real, "again") == path
    assert (path.stat().st_ino, path.stat().st_size) == (inode, 1000)


def test_a_plain_put_on_an_existing_key_succeeds_and_writes_no_file(
    real: Cluster, one: Client
) -> None:
    """Why the file is read back after every put."""
    path = put(real, one, "twice")
    assert put_from(one, "twice", 1000) == 0
    assert path.stat().st_size == SIZE_BYTES


def test_a_file_that_cannot_be_written_leaves_an_object_in_memory_that_can_be_removed(
    real: Cluster, one: Client
) -> None:
    path = put(real, one, "unwritten")
    until("it is removed", lambda: removed(one, "unwritten"))
    path.unlink()
    path.mkdir()
    assert put_from(one, "unwritten") == 0
    until("nothing is being written", lambda: removed(one, "unwritten"))
    path.rmdir()


def test_a_client_reads_no_file_that_is_larger_than_its_local_buffer(
    real: Cluster, one: Client
) -> None:
    """Of 32 MiB here: what its readers need, see the README."""
    memory = "globals().update(large=bytearray(33 << 20))"
    place = "ctypes.addressof((ctypes.c_char * len(large)).from_buffer(large))"
    one(f"[{memory}, globals().update(at={place}), store.register_buffer(at, len(large))][0]")
    assert one(f"store.put_from('large', at, len(large), {PUT})") == 0
    listed(real, "large")
    host = real.hosts[0].name
    assert one(f"store.batch_replica_clear(['large'], {host!r})") == ["large"]
    assert one("store.get_into('large', at, len(large))") == -200


def test_a_restarted_master_has_forgotten_the_files_and_leaves_them(tmp_path: Path) -> None:
    """Why the book knows where they are."""
    with below_fs(tmp_path) as own, client(own) as one:
        path = put(own, one, "k")
        own.stop_master()
        own.start_master()
        until("the host is back", lambda: '"total_segments":1' in own.get("/get_segments_detail"))
        assert own.entry("k")["error"] == "OBJECT_NOT_FOUND"
        assert path.stat().st_size == SIZE_BYTES
        until("it is connected again", lambda: put_from(one, "k", 1000) == 0)
        assert listed(own, "k") == path


def test_what_has_no_file_after_all_can_be_removed_after_a_while(tmp_path: Path) -> None:
    """What a client leaves that was killed between the memory and the file."""
    short = ("--put_start_discard_timeout_sec=1", "--put_start_release_timeout_sec=2")
    with below_fs(tmp_path, *short) as own, client(own) as one:

        def begun() -> bool:
            return one("store.batch_put_session_start(['s'], [1000], config())") == [0] and one(
                "store.batch_put_session_end(['s'])"
            ) == [0]

        until("it is put before that is discarded", begun)
        until("it can be removed", lambda: removed(one, "s"))
