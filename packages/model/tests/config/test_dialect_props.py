# SPDX-License-Identifier: Apache-2.0
"""The YAML dialect: what holds for every document."""

import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.config import dialect

# Without the line separators of Unicode: in YAML a text with one of them spans two lines.
words = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=12
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(words, values))
def test_what_is_written_as_json_is_read_as_it_is(document: dict[str, Any]) -> None:
    parsed = dialect.parse(json.dumps(document, ensure_ascii=False))

    assert parsed.faults == []
    assert parsed.value == document


@given(st.dictionaries(words, values))
def test_what_another_writer_quotes_is_read_as_it_is(document: dict[str, Any]) -> None:
    """With every text in quotes, the two dialects cannot differ."""
    text = yaml.dump(document, Dumper=Quoting, allow_unicode=True, width=10_000)

    assert dialect.parse(text).value == document


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = dialect.parse(text)
    except yaml.YAMLError:
        return
    json.dumps(parsed.value, allow_nan=False)


class Quoting(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)
