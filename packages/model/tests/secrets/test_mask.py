# SPDX-License-Identifier: Apache-2.0
"""The masking door: which forms of a secret it knows, and what it leaves alone."""

import base64
import re

import pytest

from pipecd_model.secrets import Masker
from pipecd_model.secrets.mask import LONGEST, MOST, MOST_TOGETHER

KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\nabc\n-----END KEY-----\n"


def streamed(masker: Masker, *pieces: str) -> str:
    return "".join([*(masker.feed(piece) for piece in pieces), masker.flush()])


def test_a_value_is_masked() -> None:
    assert Masker(["s3cret"]).line("password=s3cret;") == "password=***;"


def test_a_value_of_less_than_six_characters_is_not() -> None:
    assert Masker(["short"]).line("a short one") == "a short one"


def test_each_line_of_a_longer_value_is_masked() -> None:
    masker = Masker([KEY])

    assert masker.line("> MIIEvQIBADANBgkq <") == "> *** <"
    assert masker.line("hkiG9w0BAQEFAASC") == "***"
    assert masker.line("abc") == "abc"


def test_a_whole_value_is_masked_with_its_short_lines() -> None:
    assert streamed(Masker([KEY]), f"a\n{KEY}b") == "a\n***b"


def test_a_value_is_masked_without_the_space_around_it() -> None:
    assert Masker(["  s3cret\n"]).line("x=s3cret") == "x=***"


@pytest.mark.parametrize("value", ["s3cret", "longer-s3cret", "séc-rét"])
def test_base64_of_a_value_is_masked(value: str) -> None:
    masker = Masker([value])

    for form in (base64.b64encode, base64.urlsafe_b64encode):
        assert masker.line(form(value.encode()).decode()) == "***"
        assert masker.line(form(value.encode()).decode().rstrip("=")) == "***"


@pytest.mark.parametrize("before", ["", "u:", "user:", "a user:"])
@pytest.mark.parametrize("after", ["", "\n", "!!", "@host"])
def test_base64_of_something_around_a_value_is_masked(before: str, after: str) -> None:
    shown = base64.b64encode(f"{before}longer-s3cret{after}".encode()).decode()

    masked = Masker(["longer-s3cret"]).line(shown)

    assert "***" in masked
    assert len(masked) < len(shown) - 8


@pytest.mark.parametrize("width", [76, 64])
def test_base64_that_is_broken_into_lines_is_masked(width: int) -> None:
    value = "".join(f"{number:04}" for number in range(99))
    shown = base64.b64encode(value.encode()).decode()
    lines = [shown[start : start + width] for start in range(0, len(shown), width)]

    assert [Masker([value]).line(line) for line in lines] == ["***"] * len(lines)


def test_the_longest_value_wins() -> None:
    assert Masker(["s3cret", "s3cret-and-more"]).line("s3cret-and-more s3cret") == "*** ***"


def test_values_that_overlap_are_masked_whole() -> None:
    assert Masker(["abcdef", "defghi"]).line("xabcdefghiy") == "x***y"


def test_values_one_after_the_other_are_masked_each() -> None:
    assert Masker(["s3cret"]).line("s3crets3cret") == "******"


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_value_in_two_pieces_is_masked(cut: int) -> None:
    text = "xx s3cret-1 yy"

    assert streamed(Masker(["s3cret-1"]), text[:cut], text[cut:]) == "xx *** yy"


def test_text_that_cannot_become_a_value_is_shown_at_once() -> None:
    masker = Masker(["s3cret"])

    assert masker.feed("all is well\n") == "all is well\n"
    assert masker.feed("the s3c") == "the "
    assert masker.feed("ond") == "s3cond"
    assert masker.flush() == ""


def test_what_was_held_back_comes_at_the_end() -> None:
    masker = Masker(["s3cret"])

    assert masker.feed("ends in s3cre") == "ends in "
    assert masker.flush() == "s3cre"
    assert masker.feed("t") == "t"


def test_a_long_value_holds_back_little() -> None:
    value = "".join(f"{number:06}" for number in range(5000))
    masker = Masker([value])

    shown = masker.feed(value[:-1])

    assert len(value) - 1 - 1024 * 2 < 1024 * shown.count("***")
    assert not shown.replace("***", "")


def test_the_same_letter_over_and_over_is_not_held_forever() -> None:
    masker = Masker(["a" * 10])

    shown = [masker.feed("a" * 7) for _ in range(1000)]

    assert "".join(shown).count("***") == 1
    assert masker.flush() == ""


def test_two_streams_do_not_mix() -> None:
    first = Masker(["s3cret"])
    second = first.fresh()

    assert first.feed("s3c") == ""
    assert second.feed("ret") == "ret"
    assert first.feed("ret") == "***"


def test_a_fresh_stream_leaves_the_old_one_as_it_is() -> None:
    first = Masker(["s3cret"])
    first.feed("s3c")

    first.fresh()

    assert first.feed("ret") == "***"


def test_a_line_leaves_the_stream_as_it_is() -> None:
    masker = Masker(["s3cret"])
    masker.feed("s3c")

    assert masker.line("s3cret") == "***"
    assert masker.feed("ret") == "***"


def test_asterisks_are_no_secret() -> None:
    assert Masker(["********"]).line("********") == "********"


def test_without_values_everything_passes() -> None:
    assert streamed(Masker([]), "any", "thing") == "anything"


WRITTEN = {
    "percent-encoded": ("p/ss wörd&é=1", "p%2Fss%20w%C3%B6rd%26%C3%A9%3D1"),
    "percent-encoded in small letters": ("p/ss wörd&é=1", "p%2fss%20w%c3%b6rd%26%c3%a9%3d1"),
    "percent-encoded but for slashes": ("p/ss word&=1", "p/ss%20word%26%3D1"),
    "in a form": ("p/ss word&=1", "p%2Fss+word%26%3D1"),
    "as JavaScript encodes a part": ("it's (so)/!", "it's%20(so)%2F!"),
    "hexadecimal": ("hunter2!", "68756e7465723221"),
    "hexadecimal in capitals": ("hunter2!\xaa", "68756E7465723221C2AA"),
    "hexadecimal with spaces": ("hunter2!", "68 75 6e 74 65 72 32 21"),
    "hexadecimal with colons": ("hunter2!", "68:75:6e:74:65:72:32:21"),
    "escaped bytes": ("hunter2!", "\\x68\\x75\\x6e\\x74\\x65\\x72\\x32\\x21"),
    "with returns for line breaks": ("ab\ncd\nef", "ab\rcd\ref"),
    "with both": ("ab\ncd\nef", "ab\r\ncd\r\nef"),
    "with line breaks for returns": ("ab\rcd\ref", "ab\ncd\nef"),
    "without its line breaks": ("ab\ncd\nef", "abcdef"),
    "with a return at the end of each line": ("secret-one\nsecret-two", "secret-one\r"),
    "in single quotes": ("don't tell", r"don'\''t tell"),
    "quoted for the shell": ("a b$c`d", r"a\ b\$c\`d"),
    "in double quotes": ('say "no" \\', r"say \"no\" \\"),
}


@pytest.mark.parametrize(("value", "written"), WRITTEN.values(), ids=WRITTEN.keys())
def test_a_value_is_masked_as_programs_write_it(value: str, written: str) -> None:
    shown = Masker([value]).line(f"<{written}>")

    assert shown.startswith("<***"), shown
    assert shown.strip("<>*\r") == ""


@pytest.mark.parametrize(("value", "written"), WRITTEN.values(), ids=WRITTEN.keys())
def test_that_holds_across_pieces(value: str, written: str) -> None:
    masker = Masker([value])

    shown = "".join([*(masker.feed(letter) for letter in f"<{written}>"), masker.flush()])

    assert shown.strip("<>*\r") == ""


def test_a_long_hexadecimal_dump_in_lines_is_masked() -> None:
    value = "0123456789" * 10
    lines = re.findall(".{1,60}", value.encode().hex())

    assert all(Masker([value]).line(line) == "***" for line in lines)


def test_a_value_that_overlaps_itself_is_masked_once() -> None:
    masker = Masker(["aa-aa-aa", "a" * LONGEST])

    assert masker.line("x aa-aa-aa-aa-aa y") == "x *** y"
    assert masker.line("a" * 1_000_000) == "***"
    assert len(masker.places("a" * 1_000_000)) == 1


@pytest.mark.parametrize(
    "values",
    [
        ["".join(f"line {number:06}\n" for number in range(100_000))],
        [f"secret {number:06}" for number in range(100_000)],
        ["long and longer " * 100_000],
    ],
    ids=["lines", "values", "one value"],
)
def test_hostile_values_cannot_make_the_search_endless(values: list[str]) -> None:
    masker = Masker(values)

    assert len(masker.needles) <= MOST
    assert not masker.is_complete
    assert masker.line(values[0][:LONGEST]) == "***", "whole values come first"


def test_values_of_an_honest_application_are_all_looked_for() -> None:
    keys = [KEY.replace("MII", f"{number:06}") * 3 for number in range(30)]

    assert Masker([*keys, *keys]).is_complete


def test_many_maskers_become_one_in_which_each_has_its_share() -> None:
    hostile = [Masker(f"{each} {number:06}" for number in range(MOST)) for each in "abcdefg"]
    honest = Masker(["an honest value"])

    joined = Masker.join([*hostile, honest])

    assert len(joined.needles) <= MOST_TOGETHER
    assert joined.line("an honest value, a 000000") == "***, ***"
    assert not Masker.join([])
