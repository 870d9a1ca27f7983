"""What the adapter relies on in a released Mooncake, most of it undocumented: one test each.

They speak to a real Master and the real client without the adapter. When an upgrade breaks one, its
name says what has changed and where the adapter has to be looked at.
"""

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from tests.support.mooncake.driven import Client, client
from tests.support.mooncake.lab import (
    LEASE_TTL_S,
    MIB,
    PATIENT,
    SOON_MISSED,
    Cluster,
    cluster,
    needs_wheel,
    pair,
    require_etcd,
    until,
)
from weightctl.adapters.mooncake.client.codes import CODES, Meaning
from weightctl.adapters.mooncake.keys import KEY_BYTES_MAX
from weightctl.adapters.mooncake.parking.drain import Drains

pytestmark = needs_wheel

GRACE_S = 10
"""Longer than two questions take on a busy machine."""
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A frozen Master must not lose its hosts.
    with cluster(tmp_path_factory.mktemp("mooncake"), PATIENT, segment_mib=64) as made:
        yield made


@pytest.fixture(scope="module")
def one(real: Cluster) -> Iterator[Client]:
    with client(real) as made:
        yield made


@pytest.fixture(autouse=True)
def emptied(real: Cluster) -> None:
    real.empty()


def put(client: Client, key: str, **fields: object) -> None:
    assert client(f"store.put({key!r}, b'x' * 1000, config(**{fields!r}))") == 0


def reads(client: Client, key: str) -> None:
    """It can be read; one that is held up for longer than its lease reads again."""
    until("it is read", lambda: client(f"store.get({key!r}) == b'x' * 1000") is True)


def offloaded(real: Cluster, key: str) -> None:
    until("it is offloaded", lambda: bool(real.entry(key)["local_disk_values"]))


def cleared(client: Client, real: Cluster, key: str) -> None:
    """Drop the memory replicas, waiting for the lease."""

    def gone() -> bool:
        for host in real.hosts:
            client(f"store.batch_replica_clear([{key!r}], {host.name!r})")
        return bool(real.entry(key)["values"] == [])

    until("its memory replica is dropped", gone)


# --- looking ---


def test_a_query_takes_no_lease_and_promotes_nothing(real: Cluster, one: Client) -> None:
    put(one, "k")
    offloaded(real, "k")
    cleared(one, real, "k")
    end = time.monotonic() + 2 * LEASE_TTL_S
    while time.monotonic() < end:
        real.entry("k")
        real.get("/get_all_keys")
        real.get("/get_segments_detail")
    assert real.entry("k")["values"] == []
    assert one("store.remove('k')") == 0


def test_a_missing_key_is_an_entry_with_its_own_error(real: Cluster) -> None:
    entry = real.entry("nothing")
    assert (entry["ok"], entry["error"]) == (False, "OBJECT_NOT_FOUND")


def test_a_query_is_decoded_before_it_is_split_at_commas(real: Cluster, one: Client) -> None:
    put(one, "a,b")
    found = json.loads(real.get("/batch_query_keys?keys=a%2Cb"))["data"]
    assert sorted(found) == ["a", "b"]


def test_health_says_who_serves(real: Cluster) -> None:
    health = json.loads(real.get("/health"))
    assert health["service_ready"] is True
    assert {"role", "view_version"} <= set(health)


def test_a_query_without_keys_is_refused(real: Cluster) -> None:
    with pytest.raises(HTTPError, match="400"):
        real.get("/batch_query_keys?keys=")


def test_every_key_that_is_written_can_be_queried_strictly_encoded(
    real: Cluster, one: Client
) -> None:
    keys = ["a b", "a+b", "a%2Fb", "a/b", "a?b&c=d#e", "ü\U0001f600", "=", "x" * 240]
    for key in keys:
        put(one, key)
    encoded = ",".join(quote(key, safe="") for key in keys)
    found = json.loads(real.get(f"/batch_query_keys?keys={encoded}"))["data"]
    assert sorted(found) == sorted(keys)
    assert all(entry["ok"] for entry in found.values())


def test_a_thousand_of_the_longest_keys_fit_one_query(real: Cluster) -> None:
    keys = [f"{number:0{KEY_BYTES_MAX}d}" for number in range(1000)]
    found = json.loads(real.get("/batch_query_keys?keys=" + ",".join(keys)))["data"]
    assert sorted(found) == keys


def test_an_entry_has_the_fields_that_are_read(real: Cluster, one: Client) -> None:
    put(one, "k", preferred_segment=real.hosts[0].name)
    offloaded(real, "k")
    entry = real.entry("k")
    assert (entry["ok"], entry["error"]) == (True, None)
    (memory,), (disk,) = entry["values"], entry["local_disk_values"]
    assert memory["size_"] == disk["object_size"] == 1000
    assert {"buffer_address_", "transport_endpoint_"} <= set(memory)
    lists = {"values", "disk_values", "local_disk_values", "nof_values"}
    missing = json.loads(real.get("/batch_query_keys?keys=none"))["data"]["none"]
    assert lists <= set(entry)
    assert lists <= set(missing)


def test_the_list_of_segments_maps_places_to_hosts(real: Cluster, one: Client) -> None:
    """By the endpoint of a memory replica its segment, by the client of a disk copy its host."""
    name = real.hosts[0].name
    put(one, "k", preferred_segment=name)
    offloaded(real, "k")
    rows = json.loads(real.get("/get_segments_detail"))["segments"]
    (row,) = [row for row in rows if row["segment_name"] == name]
    entry = real.entry("k")
    assert entry["values"][0]["transport_endpoint_"] == row["te_endpoint"]
    assert entry["local_disk_values"][0]["client_id"] == row["client_id"]
    assert row["status"] == "OK"
    assert 0 < row["allocator_used_bytes"] <= row["allocator_capacity_bytes"]


def test_the_list_of_all_keys_has_one_a_line_also_what_is_only_on_a_disk(
    real: Cluster, one: Client
) -> None:
    for key in ("a b", "k"):
        put(one, key)
    offloaded(real, "k")
    cleared(one, real, "k")
    assert sorted(filter(None, real.get("/get_all_keys").split("\n"))) == ["a b", "k"]


def test_what_a_frozen_master_was_asked_ends_with_a_code_and_is_carried_out_later(
    real: Cluster, one: Client
) -> None:
    """Why such a code means: look before it is tried again. An outage looks like absence, too."""
    numbers = itertools.count()

    with client(real, answer_s=3) as hasty:

        def carried_out() -> bool:
            """Unless its time was over before it was sent: the asking process may be held up."""
            key = f"k{next(numbers)}"
            put(one, key)
            offloaded(real, key)
            time.sleep(2 * LEASE_TTL_S)
            real.freeze()
            try:
                assert hasty(f"store.batch_remove([{key!r}], False)") == [-901]
                assert hasty(f"len(store.get({key!r}))") == 0
            finally:
                real.thaw()
            with suppress(TimeoutError):
                until("it is carried out", lambda: not real.entry(key)["ok"], 10 * LEASE_TTL_S)
                return True
            return False

        until("what was asked is carried out", carried_out)


# --- putting ---


def test_a_session_takes_group_pin_type_and_place(real: Cluster, one: Client) -> None:
    name = real.hosts[1].name
    fields = f"group_ids=['g'], with_hard_pin=True, replica_num=1, preferred_segment={name!r}"
    made = f"config({fields}, data_type=library.ObjectDataType.WEIGHT)"
    assert one(f"store.batch_put_session_start(['k'], [1000], {made})") == [0]
    assert one("store.batch_put_from_multi_buffer_ranges(['k'],[[pointer]],[[1000]],[[0]])") == [
        1000
    ]
    assert one("store.batch_put_session_end(['k'])") == [0]
    rows = json.loads(real.get("/get_segments_detail"))["segments"]
    (endpoint,) = [row["te_endpoint"] for row in rows if row["segment_name"] == name]
    assert [value["transport_endpoint_"] for value in real.entry("k")["values"]] == [endpoint]
    offloaded(real, "k")
    until("a pin does not keep it from being removed", lambda: removed(one, "k"))


def test_what_is_pinned_outlives_a_pressure_that_evicts_the_rest(
    real: Cluster, one: Client
) -> None:
    """Both were read, so neither is protected by anything else once the leases have run out."""
    put(one, "pinned", with_hard_pin=True)
    put(one, "plain")
    offloaded(real, "pinned")
    offloaded(real, "plain")
    time.sleep(2 * LEASE_TTL_S)
    number = itertools.count()

    def evicted() -> bool:
        one(f"[store.put('kv-{next(number)}', bytes(4 << 20), config()) for _ in [0]][0]")
        return not real.entry("plain")["values"]

    until("what is not pinned leaves memory", evicted)
    assert real.entry("pinned")["values"]


def test_a_key_that_was_removed_and_put_again_is_offloaded_again(
    real: Cluster, one: Client
) -> None:
    for _ in range(2):
        put(one, "k")
        offloaded(real, "k")
        until("it is removed", lambda: removed(one, "k"))


def test_what_a_killed_client_had_begun_is_discarded(tmp_path: Path) -> None:
    flags = ("--put_start_discard_timeout_sec=1", "--put_start_release_timeout_sec=60")
    with cluster(tmp_path, *flags, hosts=1, offload=False) as own, client(own) as one:
        with client(own) as doomed:
            assert doomed("store.batch_put_session_start(['k'], [1000], config())") == [0]
        assert own.entry("k")["error"] == "REPLICA_IS_NOT_READY"

        def put_again() -> bool:
            return one("store.batch_put_session_start(['k'], [1000], config())") == [0]

        until("its place is free again", put_again)


def test_a_session_is_seen_as_not_ready_until_its_end(real: Cluster, one: Client) -> None:
    assert one("store.batch_put_session_start(['k'], [1000], config())") == [0]
    assert real.entry("k")["error"] == "REPLICA_IS_NOT_READY"
    assert one("store.batch_put_from_multi_buffer_ranges(['k'],[[pointer]],[[600]],[[0]])") == [600]
    assert one("store.batch_put_from_multi_buffer_ranges(['k'],[[pointer]],[[400]],[[600]])") == [
        400
    ]
    assert one("store.batch_put_session_end(['k'])") == [0]
    assert real.entry("k")["ok"] is True


def test_a_revoked_session_leaves_nothing(real: Cluster, one: Client) -> None:
    assert one("store.batch_put_session_start(['k'], [1000], config())") == [0]
    assert one("store.batch_put_session_revoke(['k'])") == [0]
    assert real.entry("k")["error"] == "OBJECT_NOT_FOUND"


def test_a_session_on_an_existing_key_says_so(real: Cluster, one: Client) -> None:
    put(one, "k")
    assert one("store.batch_put_session_start(['k'], [5], config())") == [-705]
    assert CODES[-705].name == "OBJECT_ALREADY_EXISTS"


def test_a_put_on_an_existing_key_succeeds_and_writes_nothing(real: Cluster, one: Client) -> None:
    put(one, "k")
    assert one("store.put('k', b'other bytes', config())") == 0
    reads(one, "k")


def test_an_object_without_bytes_is_refused(real: Cluster, one: Client) -> None:
    assert one("store.batch_put_session_start(['k'], [0], config())") == [-600]


def test_what_does_not_fit_is_refused(real: Cluster, one: Client) -> None:
    assert one(f"store.batch_put_session_start(['k'], [{1024 * MIB}], config())") == [-200]


# --- reading ---


def test_ranges_are_read_from_memory_and_refused_from_a_disk(real: Cluster, one: Client) -> None:
    put(one, "k")
    read = "store.get_into_ranges([pointer], [['k']], [[[0]]], [[[100]]], [[[50]]])"
    until("it is read", lambda: one(read) == [[[50]]])
    offloaded(real, "k")
    cleared(one, real, "k")
    assert one(read) == [[[-900]]]
    until("it is read", lambda: one("store.get_into('k', pointer, 4 << 20)") == 1000)


def test_a_touch_promotes_what_is_only_on_a_disk(real: Cluster, one: Client) -> None:
    put(one, "k")
    offloaded(real, "k")
    cleared(one, real, "k")
    one("len(store.batch_get_replica_desc(['k']))")
    until("it is promoted", lambda: bool(real.entry("k")["values"]))
    assert real.entry("k")["local_disk_values"]


# --- removing ---


def removed(client: Client, key: str) -> bool:
    return client(f"store.batch_remove([{key!r}], False)") == [0]


def refused_after_a_read_of(client: Client, read: str, other: str, group: str = "") -> bool:
    """Whether `other` was leased by that; it is put anew when the lease was over too soon."""
    got = client(f"[len(store.get({read!r})) and 0, *store.batch_remove([{other!r}], False)]")
    if got == [0, 0]:
        put(client, other, **({"group_ids": [group]} if group else {}))
    return got == [0, -706]


def test_reading_one_of_a_group_leases_all_of_it(real: Cluster, one: Client) -> None:
    for key in ("a", "b"):
        put(one, key, group_ids=["g"])
        offloaded(real, key)
    until("the other one is refused", lambda: refused_after_a_read_of(one, "a", "b", group="g"))
    until("both are removed", lambda: removed(one, "b"))


def test_a_read_object_cannot_be_removed_until_its_lease_has_run_out(
    real: Cluster, one: Client
) -> None:
    put(one, "k")
    offloaded(real, "k")
    until("its removal is refused", lambda: refused_after_a_read_of(one, "k", "k"))
    until("it is removed", lambda: one("store.batch_remove(['k'], False)") == [0])
    assert one("store.batch_remove(['k'], False)") == [-704]


def test_only_the_client_that_put_an_object_can_clear_its_memory(
    real: Cluster, one: Client
) -> None:
    host = real.hosts[0].name
    put(one, "k", preferred_segment=host)
    offloaded(real, "k")
    with client(real) as other:
        end = time.monotonic() + 3 * LEASE_TTL_S
        while time.monotonic() < end:
            assert other(f"store.batch_replica_clear(['k'], {host!r})") == []
    cleared(one, real, "k")


def test_a_clear_of_the_last_replica_makes_the_object_vanish(real: Cluster, one: Client) -> None:
    """Why a complete cold replica is looked for directly before each clear."""
    host = real.hosts[0].name
    put(one, "k", preferred_segment=host)
    if one(f"store.batch_replica_clear(['k'], {host!r})") == ["k"]:
        assert real.entry("k")["error"] == "OBJECT_NOT_FOUND"


def test_a_segment_can_be_mounted_moved_onto_by_anybody_and_unmounted_with_a_grace(
    real: Cluster, one: Client
) -> None:
    """Parking: how a client drops what another one has put."""
    host = real.hosts[0].name
    put(one, "k", preferred_segment=host)
    offloaded(real, "k")
    with client(real) as other:
        ids = other(
            "store.allocate_and_mount_segment(size=16 << 20, protocol='tcp')['segment_ids']"
        )
        rows = json.loads(real.get("/get_segments_detail"))["segments"]
        (lot,) = [row for row in rows if [row["segment_id"]] == ids]
        assert other(f"store.create_move_task('k', {host!r}, {lot['segment_name']!r})[1]") == 0

        def places() -> list[str]:
            values = real.entry("k")["values"]
            assert isinstance(values, list)
            return [value["transport_endpoint_"] for value in values]

        until("it is moved", lambda: places() == [lot["te_endpoint"]])
        assert other(f"store.unmount_and_free_segment({ids!r}, {GRACE_S})") == 0
        rows = json.loads(real.get("/get_segments_detail"))["segments"]
        status = [row["status"] for row in rows if [row["segment_id"]] == ids]
        assert status == ["GRACEFULLY_UNMOUNTING"]
        reads(other, "k")
        until("it is gone from memory", lambda: places() == [])
        assert real.entry("k")["local_disk_values"]
        reads(other, "k")


def test_a_drain_goes_on_in_the_grace_of_an_unmount(real: Cluster, one: Client) -> None:
    """Parking: what is neither pinned nor leased then has to be held until the segment is gone."""
    mounted = one("store.allocate_and_mount_segment(size=16 << 20, protocol='tcp')['segment_ids']")

    def ours() -> list[Mapping[str, str]]:
        rows = json.loads(real.get("/get_segments_detail"))["segments"]
        return [row for row in rows if [row["segment_id"]] == mounted]

    (lot,) = ours()
    put(one, "k", preferred_segment=lot["segment_name"])
    assert one("len(store.batch_get_replica_desc(['k']))") == 1  # its lease keeps it there
    Drains(real.admin, PATIENCE_S).begin(lot["segment_name"])
    assert one(f"store.unmount_and_free_segment({mounted!r}, {GRACE_S})") == 0

    def moved() -> bool:
        (value,) = real.entry("k")["values"]
        return bool(value["transport_endpoint_"] != lot["te_endpoint"])

    until("it lies on a host", moved)
    until("the segment is gone", lambda: not ours())
    # No host offloads what was only moved to it, which the next test would wait for.
    until("it is removed", lambda: one("store.remove('k')") == 0)


# --- Masters ---


def test_a_restarted_master_knows_what_the_hosts_have_on_disk_and_nothing_else(
    tmp_path: Path,
) -> None:
    """Why the marker of an epoch is an object in memory only."""
    with cluster(tmp_path, PATIENT, hosts=1) as own, client(own) as one:
        put(one, "k", with_hard_pin=True)
        offloaded(own, "k")
        own.stop_master()
        own.start_master()
        until("the host reports its disk", lambda: bool(own.entry("k")["ok"]))
        assert own.entry("k")["values"] == []
        until(
            "the host's memory is mounted again",
            lambda: '"total_segments":1' in own.get("/get_segments_detail"),
        )


def test_the_end_of_a_put_says_when_its_master_has_forgotten_the_beginning(tmp_path: Path) -> None:
    """Of a removal the same code says that it is done: see `transfers.put`."""
    with cluster(tmp_path, PATIENT, hosts=1, offload=False) as own, client(own) as one:
        assert one("store.batch_put_session_start(['k'], [1000], config())") == [0]
        own.stop_master()
        own.start_master()
        until(
            "the host's memory is mounted again",
            lambda: '"total_segments":1' in own.get("/get_segments_detail"),
        )

        def ended() -> object:
            return one("store.batch_put_session_end(['k'])")

        until("it is connected again", lambda: ended() not in ([-900], [-901]))
        assert ended() == [-704]
        assert CODES[-704].meaning is Meaning.ABSENT


def test_a_standby_says_that_it_does_not_serve_and_answers_no_query(tmp_path: Path) -> None:
    require_etcd()
    with pair(tmp_path, hosts=0) as two:

        def told() -> bool:
            """The lead may change between two questions; then they are put again."""
            health = two.health()
            serving = [one["role"] for one in health.values() if one["service_ready"]]
            standby = [address for address, one in health.items() if not one["service_ready"]]
            if serving != ["leader"] or len(standby) != 1:
                return False
            try:
                two.fetch(standby[0], "/batch_query_keys?keys=k")
            except HTTPError as refused:
                return refused.code == 503
            return False

        until("one leads, and the other one answers no query", told)


# --- hosts ---


def test_a_host_names_a_file_after_the_key_with_slashes_replaced(
    real: Cluster, one: Client
) -> None:
    """So two keys may share a file, and a long key is never offloaded."""
    put(one, "weights/a/b", preferred_segment=real.hosts[0].name)
    offloaded(real, "weights/a/b")
    names = [path.name for host in real.hosts for path in host.folder.rglob("*") if path.is_file()]
    assert any(name.endswith("weights_a_b") for name in names)


def test_a_hosts_file_is_read_beside_memory_by_the_hosts_own_call_without_lease_or_promotion(
    real: Cluster, one: Client
) -> None:
    """What `client.on_disk` relies on: the call, its forms, and that the file is what is read."""
    put(one, "weights/a", preferred_segment=real.hosts[0].name)
    offloaded(real, "weights/a")
    setup = {"metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "rdma_devices": ""}
    setup["local_hostname"] = "127.0.0.1"
    endpoint = real.entry("weights/a")["local_disk_values"][0]["transport_endpoint"]
    module = "__import__('weightctl.adapters.mooncake.client.on_disk', fromlist=['OnDisk'])"
    made = f"{module}.OnDisk({setup!r}, memoryview(memory), pointer)"
    read = f"globals().setdefault('disk', {made}).digest({endpoint!r}, 'weights/a', 1000, 60.0)"

    def is_read(content: bytes) -> None:
        wanted = sha256(content).hexdigest()  # a buffer is lent for some seconds only
        until("it is read", lambda: one(f"{read}[0].hex()") == wanted)

    is_read(b"x" * 1000)
    assert real.entry("weights/a")["values"], "memory has it as well, and is not what was read"
    cleared(one, real, "weights/a")
    is_read(b"x" * 1000)
    (path,) = [path for path in real.hosts[0].folder.rglob("*weights_a") if path.is_file()]
    path.write_bytes(path.read_bytes().replace(b"x" * 1000, b"y" * 1000))
    is_read(b"y" * 1000)
    assert real.entry("weights/a")["values"] == []
    assert one("store.remove('weights/a')") == 0


def test_a_removed_object_comes_back_when_its_host_restarts_on_its_folder(tmp_path: Path) -> None:
    """Why a deletion is only as final as the hosts' folders: see the README."""
    with cluster(tmp_path, SOON_MISSED, hosts=1) as own, client(own) as one:
        put(one, "k")
        offloaded(own, "k")
        until("it is removed", lambda: one("store.batch_remove(['k'], False)") == [0])
        own.hosts[0].kill()
        until(
            "the host is forgotten", lambda: '"total_segments":0' in own.get("/get_segments_detail")
        )
        own.hosts[0].start()
        until("it is back", lambda: bool(own.entry("k")["ok"]))
        assert own.entry("k")["values"] == []
