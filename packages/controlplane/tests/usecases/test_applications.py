# SPDX-License-Identifier: Apache-2.0
"""Where a person sees an application's folder."""

import pytest

from pipecd_controlplane.usecases.applications import browse_url


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("git@github.com:org/name.git", "https://github.com/org/name/tree/main/apps/x"),
        ("https://github.com/org/name.git", "https://github.com/org/name/tree/main/apps/x"),
        ("https://user:pw@host.example/o/n", "https://host.example/o/n/tree/main/apps/x"),
        ("ssh://git@host.example:2222/o/n.git", "https://host.example/o/n/tree/main/apps/x"),
        ("git@bitbucket.org:org/name.git", "https://bitbucket.org/org/name/src/main/apps/x"),
        ("/srv/git/name.git", ""),
        ("file:///srv/git/name.git", ""),
        ("", ""),
    ],
)
def test_the_url_is_the_sites_own(remote: str, url: str) -> None:
    assert browse_url(remote, "main", "apps/x") == url
