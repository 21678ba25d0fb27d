# SPDX-License-Identifier: Apache-2.0
"""Whether a piped counts as online, by its last report and its last connection."""

import pytest

from pipecd_controlplane.usecases.pipeds import ONLINE_SECONDS, RECONNECT_SECONDS, counts_as_online


@pytest.mark.parametrize(
    ("reported", "connected", "expected"),
    [
        pytest.param(ONLINE_SECONDS - 1, None, True, id="it only polls"),
        pytest.param(ONLINE_SECONDS, None, False, id="silent for too long"),
        pytest.param(30, RECONNECT_SECONDS - 1, True, id="about to connect again"),
        pytest.param(30, RECONNECT_SECONDS, False, id="killed"),
        pytest.param(RECONNECT_SECONDS, RECONNECT_SECONDS, False, id="killed as it reported"),
        pytest.param(10, 50, True, id="it reports, but cannot watch"),
        pytest.param(ONLINE_SECONDS, 1, False, id="silent, and its connection has just ended"),
    ],
)
def test_a_killed_piped_is_offline_when_it_should_be_back(
    reported: float, connected: float | None, expected: bool
) -> None:
    """Its last report alone would make it look alive for two minutes."""
    assert counts_as_online(reported, connected) is expected
