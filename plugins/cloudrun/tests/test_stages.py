# SPDX-License-Identifier: Apache-2.0
"""CLOUDRUN_SYNC, CLOUDRUN_PROMOTE and CLOUDRUN_ROLLBACK of services."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from pipecd_sdk import StageResult, StageStatus, replace
from pipecd_sdk.testing import FakeClock
from pipecd_test_support.google_cloud.cloud_run_lab import CloudRunLab, make_commit, make_service
from pipecd_test_support.google_cloud.fake_cloud_run import LATEST, PlannedFault, make_error

V1 = make_service("gcr.io/shop/web:v1")
V2 = make_service("gcr.io/shop/web:v2")
FIRST = "web-v1-0000001"
SECOND = "web-v2-0000002"
SUCCESS = StageResult(status=StageStatus.SUCCESS)


async def deploy_first(lab: CloudRunLab) -> None:
    """What runs before a test begins."""
    assert await lab(V1, number=1).run("CLOUDRUN_SYNC") == SUCCESS


async def test_a_first_sync_creates_the_service_and_gives_it_all_traffic(lab: CloudRunLab) -> None:
    harness = lab(V1, number=1)

    assert await harness.run("CLOUDRUN_SYNC") == SUCCESS

    service = lab.service()
    assert lab.traffic() == {FIRST: 100}
    assert service["labels"] == {
        "pipecd-dev-managed-by": "piped",
        "pipecd-dev-piped": "piped-1",
        "pipecd-dev-application": "application-1",
        "pipecd-dev-commit-hash": make_commit(1),
    }
    assert service["template"]["labels"] == {
        **service["labels"],
        "pipecd-dev-revision-name": FIRST,
    }
    assert f"Revision {FIRST} is ready" in harness.text
    assert "Waiting for revision" in harness.text, "people see that something is going on"


async def test_promote_shifts_traffic_step_by_step_with_one_revision(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    harness = lab(V2, running=V1)
    seen = []

    for index, percent in enumerate((10, 50, 100)):
        result = await harness.run("CLOUDRUN_PROMOTE", {"percent": percent}, index=index)
        assert result == SUCCESS
        seen.append(lab.traffic())
        assert harness.metadata.values["promote-percentage"] == str(percent)

    assert seen == [{SECOND: 10, FIRST: 90}, {SECOND: 50, FIRST: 50}, {SECOND: 100}]
    assert lab.cloud.list_revisions("web") == [FIRST, SECOND]
    assert lab.service()["labels"]["pipecd-dev-commit-hash"] == make_commit(2)


async def test_rollback_restores_traffic_and_template_exactly(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    before = lab.what_people_decide()
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})

    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS

    assert lab.what_people_decide() == before
    assert lab.cloud.list_revisions("web") == [FIRST, SECOND], "no third revision was made"
    assert f"Traffic is back: {FIRST} 100 %" in harness.text
    assert f"Revision {FIRST} is ready" in harness.text, "a rollback waits, too"


async def test_a_template_with_what_revisions_do_not_keep_comes_back(lab: CloudRunLab) -> None:
    """A revision does not tell whether its health check is disabled: that is no difference."""
    given = {"metadata": {"annotations": {"run.googleapis.com/health-check-disabled": "true"}}}
    v1, v2 = (make_service(f"gcr.io/shop/web:{tag}", template=given) for tag in ("v1", "v2"))
    assert await lab(v1, number=1).run("CLOUDRUN_SYNC") == SUCCESS
    before = lab.what_people_decide()
    assert before["template"]["healthCheckDisabled"] is True
    harness = lab(v2, running=v1)
    await harness.run("CLOUDRUN_SYNC")

    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS

    assert lab.what_people_decide() == before
    assert await lab(v2, running=v1).run("CLOUDRUN_SYNC") == SUCCESS
    assert lab.cloud.list_revisions("web") == [FIRST, SECOND], "the same commit, the same revision"


async def test_what_an_earlier_release_has_kept_is_read(lab: CloudRunLab) -> None:
    assert await lab(V1, number=1).run("CLOUDRUN_SYNC") == SUCCESS
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_SYNC")
    (key,) = (each for each in harness.deployment_metadata.values if each.startswith("original-"))
    kept = json.loads(harness.deployment_metadata[key])
    del kept["unkept"]
    harness.deployment_metadata[key] = json.dumps(kept)

    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS

    assert lab.traffic() == {FIRST: 100}


@pytest.mark.parametrize("more", [{}, {"healthCheckDisabled": True}], ids=["plain", "unchecked"])
async def test_rollback_restores_a_service_that_git_never_described(
    lab: CloudRunLab, more: dict[str, Any]
) -> None:
    """It was deployed by hand, with latest: what ran is found in the service, not in git."""
    harness = lab(V2)
    cloud = lab.plugin.clouds.get(harness.targets[0])
    template = {"containers": [{"image": "by-hand:1"}], **more}
    by_hand = {"template": template, "description": "by hand"}
    await cloud.create_service("web", by_hand)
    (made,) = lab.cloud.list_revisions("web")
    await cloud.get_revision("web", made)
    await cloud.get_revision("web", made)
    await cloud.get_service("web")
    assert lab.service()["traffic"] == [{"type": LATEST, "percent": 100}]

    promoted = await harness.run("CLOUDRUN_PROMOTE", {"percent": 20})
    during = lab.traffic()
    back = await harness.run("CLOUDRUN_ROLLBACK", {})

    assert (promoted, back) == (SUCCESS, SUCCESS)
    assert during == {SECOND: 20, made: 80}
    assert lab.traffic() == {made: 100}
    assert lab.service()["description"] == "by hand"
    assert more.items() <= lab.service()["template"].items()
    assert lab.service()["template"]["containers"][0]["image"] == "by-hand:1"
    assert "labels" not in lab.service() or "pipecd-dev-managed-by" not in lab.service()["labels"]
    assert "made by other means, and is taken over" in harness.text


async def test_rollback_to_a_commit_whose_manifest_is_refused_restores_its_revision(
    lab: CloudRunLab,
) -> None:
    """Upstream's agent has deployed it, without the field that is refused here."""
    await deploy_first(lab)
    before = lab.what_people_decide()
    harness = lab(V2, running=make_service(web={"imagePullPolicy": "Always"}))
    await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})

    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS

    assert lab.what_people_decide() == before
    assert "imagePullPolicy" in harness.text


async def test_rollback_to_a_commit_whose_options_are_wrong_restores_its_revision(
    lab: CloudRunLab,
) -> None:
    await deploy_first(lab)
    before = lab.what_people_decide()
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})
    harness.running_options = {"input": {"serviceManifestFile": "/service.yaml"}}

    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS

    assert lab.what_people_decide() == before
    assert "The manifest of the commit that ran is not used" in harness.text


async def test_a_revision_that_fails_ends_the_stage_with_its_reason(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    lab.cloud.broken["web:v2"] = "The user-provided container failed to start."
    harness = lab(V2, running=V1)

    result = await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})

    assert result.status is StageStatus.FAILURE
    assert "failed to start" in result.reason
    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS
    assert lab.traffic() == {FIRST: 100}


async def test_a_revision_that_never_gets_ready_fails_in_time(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    lab.cloud.hanging.add("web:v2")
    clock = FakeClock()
    began = clock.now()
    harness = lab(V2, running=V1, clock=clock, options={"readiness": {"timeout": "90s"}})

    result = await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})

    assert result.status is StageStatus.FAILURE
    assert "is not ready after 90 seconds: revision web-v2-0000002: Ready" in result.reason
    assert clock.now() - began == timedelta(seconds=90)
    assert harness.text.count("Waiting for") >= 3, "it says that it still waits"


async def test_a_resumed_wait_has_only_the_time_that_is_left(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    lab.cloud.hanging.add("web:v2")
    clock = FakeClock()
    harness = lab(V2, running=V1, clock=clock, options={"readiness": {"timeout": "90s"}})
    began = int(clock.now().timestamp()) - 60
    harness.metadata.values["wait-start-tokyo"] = str(began)

    await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})

    assert int(clock.now().timestamp()) - began == 90


async def test_a_cancelled_wait_ends_at_once(lab: CloudRunLab) -> None:
    """Upstream waits on; here the cancellation is raised where the stage waits."""
    await deploy_first(lab)
    lab.cloud.hanging.add("web:v2")
    harness = lab(V2, running=V1, clock=FakeClock(frozen=True))

    running = asyncio.create_task(harness.run("CLOUDRUN_PROMOTE", {"percent": 10}))
    await harness.wait_logged("Waiting for revision")
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_stage_that_is_run_again_makes_no_second_revision(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_PROMOTE", {"percent": 10})
    writes = lab.cloud.count_writes("PATCH", "/web")

    assert await harness.run("CLOUDRUN_PROMOTE", {"percent": 10}) == SUCCESS

    assert lab.cloud.count_writes("PATCH", "/web") == writes
    assert lab.cloud.list_revisions("web") == [FIRST, SECOND]
    assert "as it should be already" in harness.text


async def test_what_somebody_changed_meanwhile_is_read_again(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    conflict = make_error(409, "ABORTED", "version differs")
    lab.cloud.faults.append(PlannedFault(matches="PATCH", answer=conflict, times=2))
    harness = lab(V2, running=V1)

    assert await harness.run("CLOUDRUN_PROMOTE", {"percent": 10}) == SUCCESS

    assert harness.text.count("Somebody else changed it meanwhile") == 2
    assert lab.traffic() == {SECOND: 10, FIRST: 90}


async def test_conflicts_without_end_fail_with_a_sentence(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    conflict = make_error(409, "ABORTED", "version differs")
    lab.cloud.faults.append(PlannedFault(matches="PATCH", answer=conflict, times=100))

    result = await lab(V2, running=V1).run("CLOUDRUN_PROMOTE", {"percent": 10})

    assert result.status is StageStatus.FAILURE
    assert "changed by somebody else 6 times in a row" in result.reason


async def test_a_lost_answer_of_a_write_does_nothing_twice(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    lost = make_error(503, "UNAVAILABLE", "try later")
    lab.cloud.faults.append(PlannedFault(matches="PATCH", answer=lost, is_done_first=True))
    harness = lab(V2, running=V1)

    assert await harness.run("CLOUDRUN_PROMOTE", {"percent": 10}) == SUCCESS

    assert lab.cloud.list_revisions("web") == [FIRST, SECOND]
    assert lab.traffic() == {SECOND: 10, FIRST: 90}
    assert "try later; tried again in" in harness.text


async def test_reads_that_are_too_old_are_waited_out(lab: CloudRunLab) -> None:
    lab.cloud.hidden_reads = 3

    assert await lab(V1, number=1).run("CLOUDRUN_SYNC") == SUCCESS


async def test_promote_without_anything_running_says_what_to_do(lab: CloudRunLab) -> None:
    result = await lab(V1, number=1).run("CLOUDRUN_PROMOTE", {"percent": 10})

    assert result.status is StageStatus.FAILURE
    assert "nothing runs yet that could get the other 90 %" in result.reason
    assert lab.cloud.state.services == {}


async def test_rollback_of_a_first_deployment_leaves_the_service_and_says_so(
    lab: CloudRunLab,
) -> None:
    harness = lab(V1, number=1)
    await harness.run("CLOUDRUN_SYNC")

    result = await harness.run("CLOUDRUN_ROLLBACK", {})

    assert result.status is StageStatus.FAILURE
    assert "was not there before this deployment" in result.reason
    assert lab.traffic() == {FIRST: 100}


async def test_rollback_of_what_was_never_begun_changes_nothing(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    before = lab.what_people_decide()
    harness = lab(V2, running=V1)

    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS

    assert lab.what_people_decide() == before
    assert "Nothing to undo" in harness.text


async def test_rollback_of_an_older_agents_deployment_follows_git(lab: CloudRunLab) -> None:
    """A stored deployment of the older generation has kept nothing: the running commit is used."""
    await deploy_first(lab)
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_SYNC")
    harness.deployment_metadata.values.clear()

    assert await harness.run("CLOUDRUN_ROLLBACK", {}) == SUCCESS

    assert lab.traffic() == {FIRST: 100}
    assert lab.service()["labels"]["pipecd-dev-commit-hash"] == make_commit(1)


async def test_rollback_brings_traffic_back_even_when_the_template_cannot_be(
    lab: CloudRunLab,
) -> None:
    await deploy_first(lab)
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_PROMOTE", {"percent": 50})
    refusal = make_error(400, "INVALID_ARGUMENT", "the image is gone")
    lab.cloud.on_change = lambda _: lab.cloud.faults.append(
        PlannedFault(matches="PATCH", answer=refusal)
    )

    result = await harness.run("CLOUDRUN_ROLLBACK", {})

    assert result.status is StageStatus.FAILURE
    assert f"is back ({FIRST} 100 %), but its template is still that of the failed commit" in (
        result.reason
    )
    assert lab.traffic() == {FIRST: 100}


async def test_a_failed_revision_of_the_same_commit_is_made_anew(lab: CloudRunLab) -> None:
    """A second deployment of a commit that failed is not stuck with its dead revision."""
    await deploy_first(lab)
    lab.cloud.broken["web:v2"] = "no"
    failed = lab(V2, running=V1)
    await failed.run("CLOUDRUN_SYNC")
    await failed.run("CLOUDRUN_ROLLBACK", {})
    lab.cloud.broken.clear()

    assert await lab(V2, running=V1).run("CLOUDRUN_SYNC") == SUCCESS

    assert lab.traffic() == {f"{SECOND}-2": 100}


async def test_a_retried_stage_makes_the_failed_revision_anew_once(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    lab.cloud.broken["web:v2"] = "no"
    harness = lab(V2, running=V1)
    await harness.run("CLOUDRUN_SYNC")
    lab.cloud.broken.clear()
    context = harness._context
    harness._context = lambda *given: replace(  # type: ignore[method-assign]
        made := context(*given), stage=replace(made.stage, retried_count=1)
    )

    assert await harness.run("CLOUDRUN_SYNC") == SUCCESS
    assert await harness.run("CLOUDRUN_SYNC") == SUCCESS

    assert lab.cloud.list_revisions("web") == [FIRST, SECOND, f"{SECOND}-2"]


async def test_a_retried_stage_waits_anew(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    lab.cloud.hanging.add("web:v2")
    harness = lab(V2, running=V1, clock=FakeClock())
    assert "is not ready after" in (await harness.run("CLOUDRUN_SYNC")).reason
    lab.cloud.release("web")
    lab.cloud.state.revisions["web"][SECOND].polls = 10
    context = harness._context
    harness._context = lambda *given: replace(  # type: ignore[method-assign]
        made := context(*given), stage=replace(made.stage, retried_count=1)
    )

    assert await harness.run("CLOUDRUN_SYNC") == SUCCESS


async def test_the_same_commit_deployed_again_uses_its_revision(lab: CloudRunLab) -> None:
    await deploy_first(lab)

    assert await lab(V1, number=1, running=V1).run("CLOUDRUN_SYNC") == SUCCESS

    assert lab.cloud.list_revisions("web") == [FIRST]


async def test_a_split_that_ran_before_keeps_its_proportions(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    await lab(V2, running=V1).run("CLOUDRUN_PROMOTE", {"percent": 50})
    third = lab(make_service("gcr.io/shop/web:v3"), number=3, running=V2, running_number=2)

    await third.run("CLOUDRUN_PROMOTE", {"percent": 33})
    during = lab.traffic()
    await third.run("CLOUDRUN_ROLLBACK", {})

    assert during == {"web-v3-0000003": 33, SECOND: 34, FIRST: 33}
    assert sum(during.values()) == 100
    assert lab.traffic() == {SECOND: 50, FIRST: 50}


async def test_tags_of_others_stay_and_a_stage_can_add_one(lab: CloudRunLab) -> None:
    await deploy_first(lab)
    tagged = make_service("gcr.io/shop/web:v2", traffic=[{"tag": "next", "latestRevision": True}])
    lab.service()["traffic"].append({"type": "R", "revision": FIRST, "tag": "stable"})
    harness = lab(tagged, running=V1)

    await harness.run("CLOUDRUN_PROMOTE", {"percent": 0, "tag": "canary"})

    found = {each["tag"]: each["revision"] for each in lab.service()["traffic"] if "tag" in each}
    assert found == {"stable": FIRST, "next": SECOND, "canary": SECOND}
    assert lab.traffic() == {FIRST: 100}
    await harness.run("CLOUDRUN_ROLLBACK", {})
    found = {each["tag"]: each["revision"] for each in lab.service()["traffic"] if "tag" in each}
    assert found == {"stable": FIRST}


async def test_a_service_of_upstreams_piped_is_taken_over_as_it_is(lab: CloudRunLab) -> None:
    """The labels are the same; ids are those of the other control plane."""
    await lab(V1, number=1, application="theirs").run("CLOUDRUN_SYNC")
    harness = lab(V1, number=1, running=V1, application="ours")

    assert await harness.run("CLOUDRUN_SYNC") == SUCCESS

    assert "was deployed for the application theirs, and is taken over" in harness.text
    assert lab.service()["labels"]["pipecd-dev-application"] == "ours"
    assert lab.cloud.list_revisions("web") == [FIRST], "nothing is started anew"


async def test_a_missing_right_names_the_roles(lab: CloudRunLab) -> None:
    refusal = make_error(403, "PERMISSION_DENIED", "Permission 'run.services.get' denied")
    lab.cloud.faults.append(PlannedFault(matches="GET", answer=refusal))

    result = await lab(V1, number=1).run("CLOUDRUN_SYNC")

    assert result.status is StageStatus.FAILURE
    assert "Permission 'run.services.get' denied (403 PERMISSION_DENIED)" in result.reason
    assert "roles/run.developer" in result.reason


async def test_a_plan_has_one_rollback_stage_and_shows_percents(lab: CloudRunLab) -> None:
    harness = lab(V2)

    planned = harness.plan(
        ("CLOUDRUN_PROMOTE", {"percent": "10%"}), ("CLOUDRUN_PROMOTE", {"percent": 100})
    )

    assert [(each.name, each.index, each.rollback) for each in planned] == [
        ("CLOUDRUN_PROMOTE", 0, False),
        ("CLOUDRUN_PROMOTE", 1, False),
        ("CLOUDRUN_ROLLBACK", 0, True),
    ]
    assert planned[0].metadata == {"pipecd/stage-display-metadata": "10 %"}
    too_much, no_tag = harness.faults(("CLOUDRUN_PROMOTE", {"percent": 101, "tag": "Bad_Tag"}))
    assert too_much == "stages[0].with.percent: not a share of the traffic: 101 (0 to 100)"
    assert no_tag.startswith("stages[0].with.tag: not a tag: 'Bad_Tag' (small letters, digits")
