# SPDX-License-Identifier: Apache-2.0
"""What every blob store promises, as tests: a folder and a bucket inherit them."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from pipecd_controlplane.store.blobs.blob_store import (
    BlobDamagedError,
    BlobMissingError,
    BlobRef,
    BlobsRefusedError,
    BlobStore,
    describe_blob,
    get_checked,
    iterate_checked,
    make_key,
)

BIG = os.urandom(1024) * 12 * 1024


async def in_parts(data: bytes, size: int = 300_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def find_keys(store: BlobStore, prefix: str = "") -> set[str]:
    return {entry.key async for entry in store.iterate(prefix)}


class BlobStoreContract:
    """Inherited by the tests of a store; they have a fixture `blobs`, an empty one."""

    async def test_what_was_put_is_read(self, blobs: BlobStore) -> None:
        await blobs.put("logs/a", b"one")

        assert await blobs.get("logs/a") == b"one"
        assert await blobs.get_range("logs/a", 1, 2) == b"ne"

    async def test_an_empty_object_is_there(self, blobs: BlobStore) -> None:
        await blobs.put("logs/empty", b"")

        assert await blobs.get("logs/empty") == b""
        entry = await blobs.find("logs/empty")
        assert entry is not None
        assert entry.size == 0

    async def test_an_object_that_is_not_there_is_missing_and_never_empty(
        self, blobs: BlobStore
    ) -> None:
        with pytest.raises(BlobMissingError, match="the object 'logs/a' is missing in the "):
            await blobs.get("logs/a")
        with pytest.raises(BlobMissingError):
            await blobs.get_range("logs/a", 0, 1)
        assert await blobs.find("logs/a") is None

    async def test_a_part_beyond_the_end_is_damage(self, blobs: BlobStore) -> None:
        await blobs.put("logs/a", b"short")

        with pytest.raises(BlobDamagedError, match="it ends before byte 10"):
            await blobs.get_range("logs/a", 0, 10)
        with pytest.raises(BlobDamagedError):
            await blobs.get_range("logs/a", 100, 10)

    async def test_a_key_that_is_taken_is_not_written_again(self, blobs: BlobStore) -> None:
        await blobs.put("logs/a", b"first")

        with pytest.raises(BlobsRefusedError, match=r"'logs/a' is in the .* already"):
            await blobs.put("logs/a", b"second")

        assert await blobs.get("logs/a") == b"first"

    async def test_one_of_several_writers_of_a_key_wins(self, blobs: BlobStore) -> None:
        async def put(number: int) -> bool:
            try:
                await blobs.put("logs/a", b"%d" % number)
            except BlobsRefusedError:
                return False
            return True

        won = await asyncio.gather(*(put(number) for number in range(4)))

        assert sum(won) == 1
        assert await blobs.get("logs/a") == b"%d" % won.index(True)

    async def test_an_object_can_be_replaced_on_purpose(self, blobs: BlobStore) -> None:
        await blobs.put("logs/a", b"first")
        await blobs.put("logs/a", b"second", replace=True)

        assert await blobs.get("logs/a") == b"second"

    async def test_a_large_object_is_written_and_read_in_parts(self, blobs: BlobStore) -> None:
        assert await blobs.put_parts("logs/big", in_parts(BIG)) == len(BIG)

        ref = describe_blob("logs/big", BIG)
        assert b"".join([part async for part in iterate_checked(blobs, ref)]) == BIG
        assert await blobs.get_range("logs/big", 5_000_000, 100) == BIG[5_000_000:5_000_100]

    async def test_an_object_whose_parts_end_in_an_error_is_not_there(
        self, blobs: BlobStore
    ) -> None:
        async def break_off() -> AsyncIterator[bytes]:
            yield BIG[:6_000_000]
            raise ValueError("no more")

        with pytest.raises(ValueError, match="no more"):
            await blobs.put_parts("logs/a", break_off())

        assert await blobs.find("logs/a") is None
        assert await find_keys(blobs) == set()

    async def test_an_object_of_no_parts_is_empty(self, blobs: BlobStore) -> None:
        assert await blobs.put_parts("logs/none", in_parts(b"")) == 0

        assert await blobs.get("logs/none") == b""

    async def test_what_is_deleted_is_gone_and_can_be_deleted_again(self, blobs: BlobStore) -> None:
        await blobs.put("logs/a", b"one")
        await blobs.delete("logs/a")
        await blobs.delete("logs/a")
        await blobs.delete("other/place/b")

        assert await blobs.find("logs/a") is None
        await blobs.put("logs/a", b"two")
        assert await blobs.get("logs/a") == b"two"

    async def test_a_listing_has_all_keys_below_a_prefix_with_size_and_time(
        self, blobs: BlobStore
    ) -> None:
        await blobs.put("logs/d1/a", b"one")
        await blobs.put("logs/d1/b", b"three")
        await blobs.put("logs/d10/a", b"x")
        await blobs.put("logs2/a", b"x")

        assert await find_keys(blobs, "logs/d1/") == {"logs/d1/a", "logs/d1/b"}
        assert await find_keys(blobs, "logs/") == {"logs/d1/a", "logs/d1/b", "logs/d10/a"}
        assert await find_keys(blobs, "nothing/") == set()
        assert len(await find_keys(blobs)) == 4
        entry = await blobs.find("logs/d1/b")
        assert entry is not None
        assert entry.size == 5
        assert [each async for each in blobs.iterate("logs/d1/") if each.key == entry.key] == [
            entry
        ]
        assert entry.modified_at > 1_700_000_000

    async def test_an_object_that_is_not_as_it_was_written_is_damaged(
        self, blobs: BlobStore
    ) -> None:
        ref = describe_blob("logs/a", b"as it was")
        await blobs.put("logs/a", b"as it was")
        assert await get_checked(blobs, ref) == b"as it was"

        await blobs.put("logs/a", b"as it has", replace=True)
        with pytest.raises(BlobDamagedError, match="its checksum is another one"):
            await get_checked(blobs, ref)
        with pytest.raises(BlobDamagedError, match="its checksum is another one"):
            [part async for part in iterate_checked(blobs, ref)]

        await blobs.put("logs/a", b"as it was, and more", replace=True)
        with pytest.raises(BlobDamagedError, match="it has 19 bytes in place of 9"):
            await get_checked(blobs, ref)
        with pytest.raises(BlobDamagedError, match="it has 19 bytes in place of 9"):
            [part async for part in iterate_checked(blobs, ref)]

        await blobs.put("logs/a", b"as", replace=True)
        with pytest.raises(BlobDamagedError):
            [part async for part in iterate_checked(blobs, ref)]

    async def test_a_missing_object_is_missing_however_it_is_read(self, blobs: BlobStore) -> None:
        ref = BlobRef(key="logs/a", size=3, sha256="")

        with pytest.raises(BlobMissingError):
            await get_checked(blobs, ref)
        with pytest.raises(BlobMissingError):
            [part async for part in iterate_checked(blobs, ref)]

    @pytest.mark.parametrize(
        "key",
        ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a/.b", "a b", "a\0", "Ä", "a" * 300],
    )
    async def test_a_key_that_could_lead_elsewhere_is_refused(
        self, blobs: BlobStore, key: str
    ) -> None:
        with pytest.raises(ValueError, match="not a key of an object"):
            await blobs.put(key, b"")
        with pytest.raises(ValueError, match="not a key of an object"):
            await blobs.get(key)
        with pytest.raises(ValueError, match="not a key of an object"):
            await blobs.delete(key)
        with pytest.raises(ValueError, match="not a prefix of objects"):
            await find_keys(blobs, f"{key}x")

    async def test_keys_that_are_made_can_be_used(self, blobs: BlobStore) -> None:
        key = make_key("stage-logs", now=1_800_000_000, space="0f")

        await blobs.put(key, b"")
        assert await find_keys(blobs, "stage-logs/0f/") == {key}
        assert key != make_key("stage-logs", now=1_800_000_000, space="0f")

    async def test_a_store_that_works_is_well(self, blobs: BlobStore) -> None:
        await blobs.check()

        assert await find_keys(blobs) == set()
