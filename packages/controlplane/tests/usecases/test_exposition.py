# SPDX-License-Identifier: Apache-2.0
"""One page of many, whatever is in them, that the strictest reader takes."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_controlplane.usecases.exposition import (
    LONGEST_HELP,
    PageError,
    read_page,
    relabel,
    select_project,
    write_page,
)
from pipecd_controlplane.usecases.piped_metrics import (
    LARGEST_REPORT,
    MOST_FAMILIES,
    MOST_SERIES,
    label_as_piped,
    read_report,
    select_fitting,
)
from pipecd_test_support.strict_exposition import read_strictly

GO = """\
# HELP go_gc_duration_seconds A summary of the pause duration.
# TYPE go_gc_duration_seconds summary
go_gc_duration_seconds{piped="x",project="p",quantile="0.5"} 1.5e-05
go_gc_duration_seconds_sum{piped="x",project="p"} 0.001
go_gc_duration_seconds_count{piped="x",project="p"} 9
# HELP process_open_fds Number of open file descriptors.
# TYPE process_open_fds gauge
process_open_fds{piped="x",project="p"} 12
# HELP tool_calls_total Calls.
# TYPE tool_calls_total counter
tool_calls_total{tool="kubectl"} 3
# HELP odd Without the usual ending.
# TYPE odd counter
odd{tool="kubectl"} 4
# HELP seconds How long.
# TYPE seconds histogram
seconds_bucket{le="0.1"} 1
seconds_bucket{le="+Inf"} 2
seconds_sum 0.3
seconds_count 2
# TYPE deployment_status gauge
deployment_status{deployment="d",status="DEPLOYMENT_RUNNING"} 1
free 7
"""


def test_a_page_comes_out_as_it_went_in() -> None:
    once = write_page(read_page(GO))

    assert read_strictly(once) == read_strictly(GO)
    assert write_page(read_page(once)) == once


def test_of_one_family_in_many_pages_the_head_comes_once_and_the_series_together() -> None:
    pages = [label_as_piped(read_report(GO.encode()), "p", f"piped {n}") for n in range(3)]

    text = write_page(read_page(GO), pages)

    found = read_strictly(text)
    assert text.count("# TYPE process_open_fds ") == 1
    assert sum(name == "process_open_fds" for name, _ in found) == 4
    assert sum(name == "odd" for name, _ in found) == 4


def test_whose_numbers_they_are_is_not_for_the_report_to_say() -> None:
    report = b'a{project="other",piped="another",pipecd_component="server",x="1"} 1\n'

    (family,) = label_as_piped(read_report(report), "mine", "me")

    assert dict(family.series[0].labels) == {
        "pipecd_component": "piped",
        "piped": "me",
        "project": "mine",
        "x": "1",
    }


def test_series_that_become_the_same_under_their_name_are_one() -> None:
    report = b'a{project="x"} 1\na{project="y"} 2\n'

    found = read_strictly(write_page([], [label_as_piped(read_report(report), "p", "i")]))

    assert list(found.values()) == [1.0]


def test_one_type_counts_for_a_name_that_of_most_or_our_own() -> None:
    gauge, counter = "# TYPE a gauge\na{n=%s} 1\n", "# TYPE a counter\na{n=%s} 1\n"
    others = [read_page(counter % '"1"'), read_page(gauge % '"2"'), read_page(gauge % '"3"')]

    most = write_page([], others)
    ours = write_page(read_page("# TYPE a summary\na_sum 1\na_count 1\n"), others)

    assert "# TYPE a gauge\n" in most
    assert len(read_strictly(most)) == 2
    assert "# TYPE a summary\n" in ours
    assert len(read_strictly(ours)) == 2


@pytest.mark.parametrize("other", ["a_sum", "a_count", "a_bucket", "a"])
def test_a_name_that_is_part_of_another_metric_is_left_out(other: str) -> None:
    histogram = '# TYPE a histogram\na_bucket{le="1"} 1\na_sum 1\na_count 1\n'
    later = f"# HELP {other} Words.\n# TYPE {other} gauge\n{other} 5\n"

    text = write_page(read_page(histogram), [read_page(later)])

    assert set(read_strictly(text)) == set(read_strictly(histogram))
    read_strictly(write_page(read_page(later), [read_page(histogram)]))


def test_only_the_series_of_a_project_and_of_none_are_for_its_people() -> None:
    page = read_page('# HELP a Words.\na{project="x"} 1\na{project="y"} 2\nb{project="x"} 3\nc 4\n')

    text = write_page(select_project(page, "y"))

    assert list(read_strictly(text).values()) == [2.0, 4.0]
    assert "b" not in text.split()


@pytest.mark.parametrize(
    "report",
    [
        b"\xff",
        b"no metrics at all",
        b"{} 1\n",
        b'{"utf-8 name"} 1\n',
        b'a{"l b"="1"} 1\n',
        b'a{__name__="b"} 1\n',
        b'a{__meta="b"} 1\n',
        b'a{b="1"',
        b'a{b="1",b="2"} 1\n',
        b"a one\n",
        b"a 1" + b"0" * 1000 + b"\n",
        b"# TYPE a histogram\na_bucket 1\n",
        b'# TYPE a histogram\na_bucket{le="x"} 1\n',
        b'# TYPE a histogram\na_sum{le="1"} 1\n',
        b'# TYPE a summary\na{quantile="x"} 1\n',
        b"# TYPE a summary\na 1\n",
        b"a" * 5000 + b" 1\n",
        b"a" * 201 + b" 1\n",
        b'a{b="' + b"x" * 1001 + b'"} 1\n',
        b'a{b="' + b'\\"' * 500 + b'"} 1\n',
        b"a{" + b",".join(b'l%d="x"' % number for number in range(100)) + b"} 1\n",
        b"".join(b"a%d 1\n" % number for number in range(MOST_FAMILIES + 1)),
        b"# TYPE a gauge\n"
        + b"".join(b'a{n="%d"} 1\n' % number for number in range(MOST_SERIES + 1)),
        b"\n" * 100_000,
        b" " * (LARGEST_REPORT + 1),
    ],
)
def test_a_report_that_no_reader_should_see_is_refused_with_a_sentence(report: bytes) -> None:
    with pytest.raises(PageError) as refused:
        read_report(report)

    assert 5 < len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "line",
    [
        'a{b="c\\nd\\\\e\\"f"} 1',
        'a{b="# HELP x y"} 1',
        'a{b="}"} 1',
        'a{b="\N{SNOWMAN} \r \t \x00"} 1',
        "a NaN",
        "a +Inf",
        "a -Inf",
        "a 1 1700000000000",
        "a 0x1p-2",
        "a\t1",
        "# TYPE a nonsense\na 1",
        "# HELP a " + "x" * 3000 + "\na 1",
        "# HELP a line\\nbreak \\\\\na 1",
        "# TYPE a gauge\n# TYPE a gauge\na 1",
        "# TYPE a gauge\na 1\n# TYPE a counter\na 2",
        "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\na 2",
        "a 1\na 1\na 2",
        '# TYPE a histogram\na_bucket{le="1"} 1\na_bucket{le="1.0"} 1',
        "# TYPE a_total counter\na_total 1\n# TYPE a counter\na 2",
        "# TYPE a_created gauge\na_created 1\n# TYPE a counter\na 1",
    ],
)
def test_odd_reports_are_refused_or_become_a_page_for_the_strictest(line: str) -> None:
    try:
        page = label_as_piped(read_report(f"{line}\n".encode()), "p", "i")
    except PageError:
        return
    text = write_page(read_page(GO), [page])

    assert max(map(len, text.splitlines())) < 2 * LONGEST_HELP
    for labels in (labels for name, labels in read_strictly(text) if name == "a"):
        assert ("project", "p") in labels


ALPHABET = st.text(alphabet='ab_:{}="\\,#\n \r\x85\u2028"1.eNI+-', max_size=60)


@given(st.lists(st.one_of(ALPHABET, st.sampled_from(GO.splitlines())), max_size=12))
def test_no_report_makes_a_page_that_cannot_be_read(lines: list[str]) -> None:
    try:
        page = read_report("\n".join(lines).encode())
    except PageError:
        return
    read_strictly(write_page(read_page(GO), [relabel(page, {"project": "p"})]))


def test_of_reports_that_do_not_fit_together_the_largest_are_left_out() -> None:
    reports = {"flood": b"f" * 60, "small": b"s" * 10, "middle": b"m" * 30, "too": b"t" * 50}

    assert set(select_fitting(reports, 100)) == {"small", "middle", "too"}
    assert set(select_fitting(reports, 89)) == {"small", "middle"}
    assert select_fitting(reports) == reports


@given(st.dictionaries(st.sampled_from(string.ascii_letters), st.text(max_size=20), min_size=1))
def test_every_value_of_a_label_survives(labels: dict[str, str]) -> None:
    (family,) = relabel(read_page("a 1\n"), labels)

    ((_, found),) = read_strictly(write_page([family]))

    assert dict(found) == labels
