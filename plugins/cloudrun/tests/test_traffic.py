# SPDX-License-Identifier: Apache-2.0
"""Names and shares: what must hold for any of them."""

import re

from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_cloudrun.naming import make_revision_name
from pipecd_plugin_cloudrun.traffic import build_traffic, read_shares, read_tags, shift

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,47}[a-z0-9])?", fullmatch=True)
IMAGES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=120)


def test_the_worked_example_has_its_name() -> None:
    made = make_revision_name("hello", "gcr.io/p/hello:v0.5.1", "2bf969a3dad0")

    assert made == "hello-v051-2bf969a"


@given(service=NAMES, image=IMAGES, attempt=st.integers(1, 20))
def test_every_image_gives_a_name_that_the_platform_takes(
    service: str, image: str, attempt: int
) -> None:
    """Ports, digests, long and strange tags: upstream makes names of them that are refused."""
    name = make_revision_name(service, image, "2bf969a3dad0", attempt=attempt)

    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)
    assert name.startswith(f"{service}-")


@given(
    before=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 100), max_size=5),
    revision=st.sampled_from("abcx"),
    percent=st.integers(0, 100),
)
def test_shares_always_add_up_to_a_hundred(
    before: dict[str, int], revision: str, percent: int
) -> None:
    shares = shift(before, revision, percent)

    assert sum(shares.values()) == 100
    assert all(share > 0 for share in shares.values())
    others = [name for name in before if name != revision]
    assert shares.get(revision, 0) == (percent if others else 100)


@given(
    shares=st.dictionaries(st.sampled_from("abc"), st.integers(1, 100), max_size=3),
    tags=st.dictionaries(st.sampled_from(["t1", "t2", "t3", "t4"]), st.sampled_from("abcd")),
)
def test_shares_and_tags_survive_the_way_through_the_api(
    shares: dict[str, int], tags: dict[str, str]
) -> None:
    service = {"traffic": build_traffic(shares, tags) or [{}]}

    assert read_shares(service) == shares
    assert read_tags(service) == tags
