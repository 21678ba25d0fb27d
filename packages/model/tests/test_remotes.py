# SPDX-License-Identifier: Apache-2.0
"""One repository is the same one under all of its addresses, and no other is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.remotes import has_path, normalize_remote

FORMS = [
    "https://github.com/Acme/Shop.git",
    "https://github.com/acme/shop",
    "https://github.com/acme/shop/",
    "https://ada:secret@GitHub.com/acme/shop.git",
    "https://token@github.com:443/acme/shop.git",
    "http://github.com//acme//shop.git",
    "git@github.com:acme/shop.git",
    "github.com:acme/shop",
    "git@github.com:/acme/shop.git",
    "ssh://git@github.com/acme/shop.git",
    "ssh://git@github.com:22/acme/shop.git",
    "ssh://git@ssh.github.com:443/acme/shop.git",
    "git+ssh://git@github.com./acme/shop.git",
    "git://github.com/acme/shop.git",
    "  https://github.com/acme/%73hop.git\n",
]


@pytest.mark.parametrize("remote", FORMS)
def test_every_form_of_an_address_is_the_same_repository(remote: str) -> None:
    assert normalize_remote(remote) == "github.com/acme/shop"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://github.com/acme/shop", "https://gitlab.com/acme/shop"),
        ("https://github.com/acme/shop", "https://github.com/acme/shop2"),
        ("https://github.com/acme/shop", "https://github.com/evil/acme/shop"),
        ("/srv/git/shop", "git@srv:git/shop"),
        ("/srv/git/Shop", "/srv/git/shop"),
    ],
)
def test_other_repositories_stay_others(one: str, other: str) -> None:
    assert normalize_remote(one)
    assert normalize_remote(one) != normalize_remote(other)


def test_bitbucket_server_has_one_repository_over_http_and_ssh() -> None:
    """Its addresses over HTTP have a part before the path that those over ssh lack."""
    http = normalize_remote("https://bitbucket.example.com/scm/PROJ/shop.git")
    ssh = normalize_remote("ssh://git@bitbucket.example.com:7999/proj/shop.git")

    assert http == ssh == "bitbucket.example.com/proj/shop"
    assert has_path(http, "PROJ/shop")
    assert not has_path(http, "J/shop")
    assert not has_path(http, "")


def test_an_address_with_an_ipv6_host_is_one() -> None:
    assert normalize_remote("ssh://git@[2001:DB8::1]:7999/a/b.git") == "2001:db8::1/a/b"
    assert normalize_remote("git@[2001:db8::1]:a/b.git") == "2001:db8::1/a/b"


@pytest.mark.parametrize(
    ("remote", "normalized"),
    [
        ("/srv/git/shop.git", "file:/srv/git/shop"),
        ("/srv/git/shop/.git/", "file:/srv/git/shop"),
        ("file:///srv/git/x/../shop", "file:/srv/git/shop"),
    ],
)
def test_a_folder_of_a_machine_is_told_apart_by_its_path(remote: str, normalized: str) -> None:
    assert normalize_remote(remote) == normalized


@pytest.mark.parametrize(
    "remote",
    ["", "shop", "https://", "https://github.com", "https://[::1/a", "a\x00b:c", "x" * 9000],
)
def test_what_is_no_address_matches_nothing(remote: str) -> None:
    assert not normalize_remote(remote)


@given(st.text(max_size=200))
def test_any_text_is_survived(text: str) -> None:
    """Addresses come from hooks that anybody may have sent."""
    normalize_remote(text)
    has_path(text, text)
