# SPDX-License-Identifier: Apache-2.0
"""What types the guides is tested itself: a guide that says something wrong must be found."""

import os
from pathlib import Path

import pytest

from pipecd_test_support import guides, terminal_picture
from pipecd_test_support.typed_terminal import TypedTerminal

GUIDE = """\
# A guide

```sh
echo one
false   # exits with 1
```

```text
one
```

```sh
echo two
```

![What it shows](two-terminal.svg)

   ```yaml
   # shop/app.pipecd.yaml
   kind: Application
   ```
"""


def test_a_guide_is_read_in_order() -> None:
    blocks = guides.read_blocks(GUIDE)

    assert [block.kind for block in blocks] == ["sh", "text", "sh", "yaml"]
    assert [block.picture for block in blocks] == ["", "", "two-terminal.svg", ""]
    assert blocks[3].file == "shop/app.pipecd.yaml"
    assert blocks[3].text == "# shop/app.pipecd.yaml\nkind: Application\n"
    assert guides.shown_after(GUIDE, blocks, 0) == blocks[1]
    assert guides.shown_after(GUIDE, blocks, 2) is None


def test_a_command_says_how_it_ends() -> None:
    assert guides.expected_code("false   # exits with 1") == 1
    assert guides.expected_code("pipectl lint \\\n  x   # a fault: exits with 12") == 12
    assert guides.expected_code("true") == 0


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("one\ntwo", "one\n\x1b[32mtwo\x1b[0m\n"),
        ("id   4525d208-841e-5972-bad7-dda52c53b21b", "id 46e9ca4c-841e-5972-bad7-dda52c53b21b"),
        ("commit 24ca07c Say hello", "commit dcadbea Say hello"),
        ("17:45:20 1 | x (2s ago)", "03:00:01 1 | x (now)"),
        ("one\n…\nfour", "one\ntwo\nthree\nfour"),
        ("one\n…\nfour", "one\nfour"),
        ("curl: (7) …", "curl: (7) whatever it says"),
        ("a…", "a"),
    ],
)
def test_what_differs_by_chance_does_not_count(shown: str, real: str) -> None:
    assert guides.is_shown(shown, real)


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("SUCCESS", "FAILURE"),
        ("one", "one\ntwo"),
        ("one\ntwo", "one"),
        ("one\n…\nfour", "one\nfour\nfive"),
        ("exit code 1", "exit code 2"),
        ("a.c", "abc"),
        ("…", "anything"),
        ("", "something"),
    ],
)
def test_what_differs_in_meaning_is_found(shown: str, real: str) -> None:
    assert not guides.is_shown(shown, real)


def test_a_terminal_is_typed_into(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    with TypedTerminal(tmp_path, environment) as terminal:
        done = terminal.type_block(
            "cd / && export WORD=kept\n"
            "test -t 1 && stty size\n"
            "cat << 'END'\n  of $WORD\nEND\n"
            "\n"
            "echo $WORD \\\n  $PWD\n"
            "sh -c 'exit 3'\n"
            r"printf 'half\r\033[Kwhole\n'"
        )

    assert [(each.screen.strip(), each.code) for each in done] == [
        ("", 0),
        ("40 80", 0),
        ("of $WORD", 0),
        ("kept /", 0),
        ("", 3),
        ("whole", 0),
    ]


def test_a_picture_shows_the_lines_it_was_drawn_of() -> None:
    lines = ["\x1b[32m$\x1b[0m ls  <here> & there", "", "\x1b[1;31mFAILURE\x1b[0m  ✘ …"]

    drawn = terminal_picture.draw(lines, columns=80)

    assert terminal_picture.read_lines(drawn) == ["$ ls  <here> & there", "", "FAILURE  ✘ …"]
    assert terminal_picture.COLOURS[31] in drawn
