# SPDX-License-Identifier: Apache-2.0
"""Live state, drift, preview, details, versions and strategy."""

from datetime import timedelta
from typing import Any

import pytest
from pipecd_plugin_cloudrun.observing import ListedServices
from pipecd_plugin_cloudrun.watching import watch_services

from pipecd_sdk import Health, ResourceGoneError, SyncStatus, SyncStrategy
from pipecd_sdk._observation import Observation
from pipecd_sdk.testing import FakeClock
from pipecd_test_support.google_cloud.cloud_run_lab import CloudRunLab, make_job, make_service
from pipecd_test_support.google_cloud.fake_cloud_run import PlannedFault, make_error

V1 = make_service("gcr.io/shop/web:v1")
V2 = make_service("gcr.io/shop/web:v2")
FIRST, SECOND = "web-v1-0000001", "web-v2-0000002"
OPENED = "kind: Application\nspec: {encryption: {decryptionTargets: [service.yaml]}}\n"


def summarize(seen: Observation) -> list[tuple[str, str, Health]]:
    return [(each.kind, each.name, each.health) for _, each in seen.resources]


async def test_the_live_state_has_the_service_and_the_revisions_in_use(lab: CloudRunLab) -> None:
    await lab(V1, number=1).run("CLOUDRUN_SYNC")
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})

    seen = await harness.live_state()

    assert summarize(seen) == [
        ("Service", "web", Health.HEALTHY),
        ("Revision", FIRST, Health.HEALTHY),
        ("Revision", SECOND, Health.HEALTHY),
    ]
    service, first, _ = (each for _, each in seen.resources)
    assert service.metadata["traffic"] == f"{SECOND} 10 %, {FIRST} 90 %"
    assert first.parents == (service.id,)
    assert first.created_at is not None


async def test_a_failed_revision_is_unhealthy_with_its_message(lab: CloudRunLab) -> None:
    lab.cloud.broken["web:v1"] = "container failed"
    harness = lab(V1, number=1)
    await harness.run("CLOUDRUN_SYNC")

    seen = await harness.live_state()

    assert {each.health for _, each in seen.resources} == {Health.UNHEALTHY}
    assert "container failed" in seen.resources[1][1].description


async def test_what_was_deployed_is_in_sync_whatever_the_platform_added(lab: CloudRunLab) -> None:
    harness = lab(make_service(web={"resources": {"limits": {"cpu": "1"}}}), number=1)
    await harness.run("CLOUDRUN_SYNC")
    lab.service()["template"]["containers"][0]["resources"]["limits"]["cpu"] = "1000m"
    lab.service()["template"]["containers"][0]["env"].reverse()

    seen = await harness.live_state()

    assert (seen.sync.status, seen.sync.reason) == (SyncStatus.SYNCED, "")


def change_image(service: dict[str, Any]) -> None:
    service["template"]["containers"][0]["image"] = "other:1"


def split_traffic(service: dict[str, Any]) -> None:
    entry = service["traffic"][0]
    service["traffic"] = [{**entry, "percent": 60}, {**entry, "revision": "web-x", "percent": 40}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_image, "template.containers.0.image"),
        (split_traffic, f"all should go to {FIRST}, and it goes to {FIRST} 60 %, web-x 40 %"),
    ],
)
async def test_drift_names_the_field(lab: CloudRunLab, change: Any, said: str) -> None:
    harness = lab(V1, number=1)
    await harness.run("CLOUDRUN_SYNC")
    change(lab.service())

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert said in seen.sync.reason


async def test_traffic_and_revision_name_in_git_are_no_drift(lab: CloudRunLab) -> None:
    """Upstream shows both as drift for ever."""
    traffic = [{"latestRevision": True, "percent": 100}]
    manifest = make_service(traffic=traffic, template={"metadata": {"name": "web-mine"}})
    harness = lab(manifest, number=1)
    await harness.run("CLOUDRUN_SYNC")

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.SYNCED


async def test_a_missing_and_a_foreign_service_are_out_of_sync(lab: CloudRunLab) -> None:
    missing = await lab(V1, number=1).live_state()
    await lab(V1, number=1, application="other").run("CLOUDRUN_SYNC")
    foreign = await lab(V1, number=1).live_state()

    assert missing.sync.short_reason == "service web is not there"
    assert "was not deployed by this application" in foreign.sync.short_reason
    assert foreign.resources == [], "what belongs to others is not shown"


async def test_a_wrong_manifest_is_an_invalid_configuration(lab: CloudRunLab) -> None:
    seen = await lab("kind: Pod\n").live_state()

    assert seen.sync.status is SyncStatus.INVALID_CONFIG


async def test_an_api_that_refuses_makes_the_state_unknown(lab: CloudRunLab) -> None:
    refusal = make_error(403, "PERMISSION_DENIED", "not allowed")
    lab.cloud.faults.append(PlannedFault(matches="GET", answer=refusal))

    seen = await lab(V1).live_state()

    assert seen.sync.status is SyncStatus.UNKNOWN
    assert "not allowed" in seen.sync.reason


async def test_a_preview_asks_nobody_and_shows_the_manifests(lab: CloudRunLab) -> None:
    changed = (await lab(V2, running=V1).plan_preview())["tokyo"]
    same = (await lab(V1, running=V1).plan_preview())["tokyo"]
    first = (await lab(V1).plan_preview())["tokyo"]

    assert changed.summary == "1 change of service web"
    assert "-      - image: gcr.io/shop/web:v1" in changed.details
    assert "+      - image: gcr.io/shop/web:v2" in changed.details
    assert same.no_change
    assert first.summary == "service web is deployed for the first time"
    assert lab.cloud.asked == []


async def test_a_preview_against_a_manifest_that_cannot_be_read_shows_all_as_new(
    lab: CloudRunLab,
) -> None:
    unread = {**V1, "kind": "Pod"}

    preview = (await lab(V2, running=unread).plan_preview())["tokyo"]

    assert preview.summary.startswith("all is shown as new, the running commit cannot be read")
    assert "+      - image: gcr.io/shop/web:v2" in preview.details


async def test_values_of_a_manifest_with_secrets_are_never_shown(lab: CloudRunLab) -> None:
    before = make_service(web={"env": [{"name": "PASSWORD", "value": "hunter1"}]})
    after = make_service(web={"env": [{"name": "PASSWORD", "value": "hunter2"}]})
    folder = lab.write(1, before, app__pipecd__yaml=OPENED)
    first = lab(folder, number=1)
    await first.run("CLOUDRUN_SYNC")
    second = lab(lab.write(2, after, app__pipecd__yaml=OPENED), running=before)

    preview = (await second.plan_preview())["tokyo"]
    seen = await second.live_state()
    opened = await first.open_resource(seen.resources[0][1].id)

    assert preview.summary == "1 change of service web"
    shown = preview.details + seen.sync.reason + opened.manifest + (opened.difference or "")
    assert "hunter" not in shown
    assert "PASSWORD" in shown


async def test_secrets_in_commands_headers_and_whole_containers_are_never_shown(
    lab: CloudRunLab,
) -> None:
    headers = [{"name": "Key", "value": "hunter1"}]
    probe = {"httpGet": {"path": "/", "httpHeaders": headers}}
    given = {"args": ["--key=hunter2"], "command": ["run", "hunter3"], "startupProbe": probe}
    before, after = make_service(), make_service(web=given)
    side = {"image": "side:1", "name": "side", "env": [{"name": "K", "value": "hunter4"}]}
    after["spec"]["template"]["spec"]["containers"].append(side)
    first = lab(lab.write(1, before, app__pipecd__yaml=OPENED), number=1)
    await first.run("CLOUDRUN_SYNC")
    second = lab(lab.write(2, after, app__pipecd__yaml=OPENED), running=before)

    preview = (await second.plan_preview())["tokyo"]
    drifted = await second.live_state()
    await second.run("CLOUDRUN_SYNC")
    opened = await second.open_resource((await second.live_state()).resources[0][1].id)

    assert drifted.sync.status is SyncStatus.OUT_OF_SYNC
    shown = preview.details + drifted.sync.reason + opened.manifest + (opened.difference or "")
    assert "hunter" not in shown
    assert "side:1" in preview.details


async def test_details_have_the_manifest_conditions_and_the_difference(lab: CloudRunLab) -> None:
    harness = lab(V1, number=1)
    await harness.run("CLOUDRUN_SYNC")
    change_image(lab.service())
    service, revision = (each.id for _, each in (await harness.live_state()).resources)

    opened = await harness.open_resource(service)
    made = await harness.open_resource(revision)

    assert "image: other:1" in opened.manifest
    assert "gcr.io/shop/web:v1" in (opened.difference or "")
    assert {each.reason for each in opened.events} >= {"Ready", "RoutesReady"}
    assert made.difference is None
    assert any("https://console.cloud.google.com/logs" in note for note in made.notes)


async def test_a_resource_that_is_gone_or_foreign_is_not_opened(lab: CloudRunLab) -> None:
    harness = lab(V1, number=1)
    await harness.run("CLOUDRUN_SYNC")
    resource = (await harness.live_state()).resources[0][1]
    lab.service()["labels"]["pipecd-dev-application"] = "other"

    with pytest.raises(ResourceGoneError, match="is not there any more"):
        await harness.open_resource(resource)


async def test_versions_are_those_of_all_containers(lab: CloudRunLab) -> None:
    manifest = make_service("registry:5000/shop/web:v1.2@sha256:ab")
    manifest["spec"]["template"]["spec"]["containers"].append({"image": "side@sha256:cd"})

    found = await lab(manifest).versions()

    assert [(each.name, each.version) for each in found] == [("web", "v1.2"), ("side", "sha256:cd")]


async def test_the_strategy_is_the_pipeline_once_something_runs(lab: CloudRunLab) -> None:
    first = await lab(V1).strategy()
    later = await lab(V2, running=V1).strategy()

    assert first.sync is SyncStrategy.QUICK_SYNC
    assert later.sync is SyncStrategy.PIPELINE
    assert later.summary == "Pipeline sync, web v1 → v2"


async def test_jobs_are_synced_seen_and_brought_back(lab: CloudRunLab) -> None:
    first = lab(make_job(), number=1)
    await first.run("CLOUDRUN_SYNC")
    harness = lab(make_job("gcr.io/shop/batch:v2"), running=make_job())

    done = await harness.run("CLOUDRUN_SYNC")
    again = await harness.run("CLOUDRUN_SYNC")
    seen = await harness.live_state()
    refused = await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})
    back = await harness.run("CLOUDRUN_ROLLBACK", {})

    job = lab.cloud.state.jobs["batch"]
    assert (done.reason, again.reason, back.reason) == ("", "", "")
    assert lab.cloud.count_writes("PATCH", "/jobs/batch") == 2, "once there and once back"
    assert (seen.sync.status, summarize(seen)) == (
        SyncStatus.SYNCED,
        [("Job", "batch", Health.HEALTHY)],
    )
    assert "a job has no traffic" in refused.reason
    assert job["template"]["template"]["containers"][0]["image"] == "gcr.io/shop/batch:v1"


class OverError(Exception):
    """The test has seen enough."""


async def test_the_watch_announces_what_changed_and_survives_refusals(lab: CloudRunLab) -> None:
    await lab(V1, number=1).run("CLOUDRUN_SYNC")
    cloud = lab.plugin.clouds.get(lab(V1).targets[0])
    announced: list[str] = []
    looks = 0

    async def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            refusal = make_error(403, "PERMISSION_DENIED", "not allowed")
            lab.cloud.faults.append(PlannedFault(matches="GET", answer=refusal, times=2))
        if looks == 4:
            lab.service()["etag"] = "changed"
        if looks == 6:
            raise OverError

    with pytest.raises(OverError):
        await watch_services(cloud, "tokyo", announced.append, sleep=sleep)

    assert announced == ["application-1"]


async def list_once(lab: CloudRunLab) -> None:
    """Lets the watch list the services once, for the plugin."""
    cloud = lab.plugin.clouds.get(lab(V1).targets[0])

    async def sleep(_: float) -> None:
        raise OverError

    note = lab.plugin.observer.get_listed("tokyo").note
    with pytest.raises(OverError):
        await watch_services(cloud, "tokyo", lambda _: None, note=note, sleep=sleep)


async def test_what_the_watch_has_listed_is_not_asked_for_again(lab: CloudRunLab) -> None:
    harness = lab(V1, number=1)
    await harness.run("CLOUDRUN_SYNC")
    await list_once(lab)
    await harness.live_state()
    lab.cloud.asked.clear()

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason
    assert lab.cloud.asked == []
    change_image(lab.service())
    await list_once(lab)
    lab.cloud.asked.clear()
    assert (await harness.live_state()).sync.status is SyncStatus.OUT_OF_SYNC
    revision = f"/v2/projects/shop/locations/asia-northeast1/services/web/revisions/{FIRST}"
    assert lab.cloud.asked == [f"GET {revision}"], "the service has changed, so may have these"


async def test_a_list_from_before_a_stage_does_not_count(lab: CloudRunLab) -> None:
    await lab(V1, number=1).run("CLOUDRUN_SYNC")
    await list_once(lab)
    harness = lab(V2, running=V1)
    assert (await harness.live_state()).sync.status is SyncStatus.OUT_OF_SYNC

    await harness.run("CLOUDRUN_SYNC")

    seen = await harness.live_state()
    assert seen.sync.status is SyncStatus.SYNCED, seen.sync.reason


async def test_a_list_that_is_old_does_not_count() -> None:
    now = 100.0
    listed = ListedServices(lambda: now)
    listed.note({"web": {"etag": "1"}}, begun=now)
    assert listed.find("web", "application-1") == {"etag": "1"}

    now += 21

    assert listed.find("web", "application-1") is None


async def test_without_a_list_a_service_is_read_less_and_less(lab: CloudRunLab) -> None:
    clock = FakeClock()
    harness = lab(V1, number=1, clock=clock)
    await harness.run("CLOUDRUN_SYNC")
    await harness.live_state()
    lab.cloud.asked.clear()

    for _ in range(20):
        await clock.advance(timedelta(minutes=1))
        await harness.live_state()

    reads = sum(each.endswith("/services/web") for each in lab.cloud.asked)
    assert 5 <= reads <= 8, "after 1, 2, 4 minutes, then every 5"
    change_image(lab.service())
    await clock.advance(timedelta(minutes=5))
    assert (await harness.live_state()).sync.status is SyncStatus.OUT_OF_SYNC


async def test_a_throttled_project_is_asked_less_and_less(lab: CloudRunLab) -> None:
    clock = FakeClock()
    harness = lab(V1, number=1, clock=clock)
    refusal = make_error(429, "RESOURCE_EXHAUSTED", "Quota exceeded")
    lab.cloud.faults.append(PlannedFault(matches="GET", answer=refusal, times=1000))
    counts = []

    for _ in range(8):
        seen = await harness.live_state()
        assert seen.sync.status is SyncStatus.UNKNOWN
        assert "Quota exceeded" in seen.sync.reason
        counts.append(len(lab.cloud.asked))
        await clock.advance(timedelta(minutes=1))

    assert len(set(counts)) <= 5, counts
