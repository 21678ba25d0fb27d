# SPDX-License-Identifier: Apache-2.0
"""An application's page says which settings of its file have no effect."""

import pytest

from pipecd_model.config import ApplicationConfig, load_application
from pipecd_piped.report.sync_states import HEADING, SyncStates
from pipecd_wire.model.application_pb2 import (
    INVALID_CONFIG,
    OUT_OF_SYNC,
    SYNCED,
    UNKNOWN,
    Application,
    ApplicationSyncState,
)

UNSERVED = '  driftDetection: {ignoreFields: ["v1:ConfigMap:default:a#data"]}\n'
NO_EFFECT = "spec.driftDetection has no effect: no field is left out of the comparison yet"


def file_with(more: str = "") -> ApplicationConfig:
    text = f"apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  name: web\n{more}"
    return load_application(text, file="app.pipecd.yaml").config


class Page:
    """What the control plane shows."""

    def __init__(self) -> None:
        self.application = Application(id="web")
        self.reports = 0

    def show(self, application_id: str, state: ApplicationSyncState) -> None:
        assert application_id == "web"
        assert state.timestamp > 0
        self.application.sync_state.CopyFrom(state)
        self.reports += 1

    @property
    def state(self) -> ApplicationSyncState:
        return self.application.sync_state


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def states(page: Page) -> SyncStates:
    return SyncStates(page.show, lambda: 1000.0)


def synced(**fields: str) -> ApplicationSyncState:
    return ApplicationSyncState(status=SYNCED, timestamp=5, **fields)


def test_an_application_that_has_no_state_yet_shows_it(page: Page, states: SyncStates) -> None:
    states.take_file(page.application, file_with(UNSERVED))

    assert page.state.status == UNKNOWN
    assert page.state.short_reason == "settings without effect: 1"
    assert page.state.reason == f"{HEADING}\n{NO_EFFECT}"


def test_a_file_without_such_settings_reports_nothing(page: Page, states: SyncStates) -> None:
    states.take_file(page.application, file_with())
    assert page.reports == 0

    states.report("web", synced())
    assert page.state == synced()


def test_every_later_state_has_it_beside_its_own_reason(page: Page, states: SyncStates) -> None:
    states.take_file(page.application, file_with(UNSERVED))
    states.report(
        "web",
        ApplicationSyncState(status=OUT_OF_SYNC, short_reason="1 less", reason="cm", timestamp=5),
    )

    assert page.state.short_reason == "1 less"
    assert page.state.reason == f"cm\n{HEADING}\n{NO_EFFECT}"


def test_it_goes_when_the_setting_goes(page: Page, states: SyncStates) -> None:
    states.report("web", synced(reason="fine"))
    states.take_file(page.application, file_with(UNSERVED))
    assert NO_EFFECT in page.state.reason

    states.take_file(page.application, file_with())

    assert (page.state.status, page.state.reason) == (SYNCED, "fine")


def test_a_broken_file_shows_its_faults_alone(page: Page, states: SyncStates) -> None:
    states.take_file(page.application, file_with(UNSERVED))
    states.report("web", ApplicationSyncState(status=INVALID_CONFIG, reason="line 3", timestamp=5))
    assert page.state.reason == "line 3"

    states.take_file(page.application, file_with(UNSERVED))
    assert page.state.status == INVALID_CONFIG, "its end is reported by who reported it"

    states.report("web", synced())
    assert page.state.reason == f"{HEADING}\n{NO_EFFECT}"


def test_the_next_piped_does_not_repeat_it(page: Page, states: SyncStates) -> None:
    states.take_file(page.application, file_with(UNSERVED))
    states.report("web", synced(reason="fine"))
    reports = page.reports

    restarted = SyncStates(page.show, lambda: 2000.0)
    restarted.take_file(page.application, file_with(UNSERVED))
    assert page.reports == reports

    restarted.take_file(page.application, file_with())
    assert (page.state.reason, page.state.short_reason) == ("fine", "")


def test_the_same_file_again_is_not_walked_again(page: Page, states: SyncStates) -> None:
    config = file_with(UNSERVED)
    states.take_file(page.application, config)
    states.take_file(page.application, config)

    assert page.reports == 1


def test_a_note_is_shown_until_it_goes(page: Page, states: SyncStates) -> None:
    def drift(reason: str) -> None:
        states.report("web", ApplicationSyncState(status=OUT_OF_SYNC, reason=reason, timestamp=5))

    drift("cm")
    states.set_note("web", "it is left alone")
    assert page.state.reason == "cm\nnote: it is left alone"
    drift("other")
    assert page.state.reason == "other\nnote: it is left alone"
    states.set_note("web", "")
    assert page.state.reason == "other"


def test_the_note_of_an_earlier_piped_is_replaced(page: Page, states: SyncStates) -> None:
    page.state.CopyFrom(
        ApplicationSyncState(status=OUT_OF_SYNC, reason="cm\nnote: old", timestamp=5)
    )

    states.take_file(page.application, file_with(UNSERVED))

    assert page.state.reason == f"cm\n{HEADING}\n{NO_EFFECT}"
