# SPDX-License-Identifier: Apache-2.0
"""Path patterns: what each sign means."""

import pytest

from pipecd_model import paths


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("foo", "foo"),
        ("foo", "foo/bar.yaml"),
        ("foo/", "foo/bar.yaml"),
        ("./foo", "foo/bar.yaml"),
        ("foo/bar", "foo/bar/deep/er.yaml"),
        ("*.md", "README.md"),
        ("docs/*.md", "docs/a.md"),
        ("docs/*", "docs/a/b.md"),
        ("*/base", "apps/base/x.yaml"),
        ("**/*.md", "README.md"),
        ("**/*.md", "docs/deep/a.md"),
        ("docs/**", "docs/a"),
        ("docs/**", "docs/a/b/c"),
        ("docs/**/c.md", "docs/c.md"),
        ("docs/**/c.md", "docs/a/b/c.md"),
        ("a?c.yaml", "abc.yaml"),
        ("[a-c].yaml", "b.yaml"),
        ("v1+", "v11"),
        ("(dev|prod).yaml", "prod.yaml"),
        (r"\*.md", "*.md"),
        ("price$.txt", "price$.txt"),
        ("  spaces.md  ", "spaces.md"),
    ],
)
def test_a_pattern_means_a_path(pattern: str, path: str) -> None:
    assert paths.matches([pattern], path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("foo", "foobar.yaml"),
        ("foo", "deep/foo"),
        ("foo/bar", "foo"),
        ("*.md", "docs/a.md"),
        ("docs/*.md", "docs/deep/a.md"),
        ("a.md", "axmd"),
        ("a?c", "a/c"),
        ("docs/**", "docs"),
        ("**/c.md", "xc.md"),
        (r"\*.md", "a.md"),
        ("/foo", "foo"),
        ("", "foo"),
        ("   ", "foo"),
    ],
)
def test_a_pattern_does_not_mean_a_path(pattern: str, path: str) -> None:
    assert not paths.matches([pattern], path)


def test_any_of_several_patterns_is_enough() -> None:
    assert paths.matches(["*.md", "docs/**"], "docs/a.yaml")


@pytest.mark.parametrize("patterns", [["docs/**", "!docs/keep"], ["!docs/keep", "docs/**"]])
def test_an_excluding_pattern_wins_wherever_it_stands(patterns: list[str]) -> None:
    assert paths.matches(patterns, "docs/other/a.md")
    assert not paths.matches(patterns, "docs/keep/a.md")


def test_only_excluding_patterns_mean_nothing() -> None:
    assert not paths.matches(["!docs"], "src/a.py")


def test_no_patterns_mean_nothing() -> None:
    assert not paths.matches([], "a")


@pytest.mark.parametrize("pattern", ["[", "!", "! ", "(a", "a\\"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(paths.BadPatternError):
        paths.check(pattern)


def test_a_refused_pattern_is_named() -> None:
    with pytest.raises(paths.BadPatternError, match=r"bad pattern '\[a'"):
        paths.matches(["[a"], "a")
