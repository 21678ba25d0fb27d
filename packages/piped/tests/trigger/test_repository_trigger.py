# SPDX-License-Identifier: Apache-2.0
"""Commits become deployments, exactly those that should."""

from pipecd_test_support.trigger_bench import WEB, WITNESS, Bench, application, application_file


async def test_an_application_that_was_never_deployed_is(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: bool(bench.desk.created))

    (deployment,) = bench.desk.created
    assert bench.handed == [deployment]
    assert deployment.application_id == "web"
    assert deployment.trigger.commit.hash == bench.head
    assert deployment.status_reason == "the application was never deployed"
    assert bench.desk.last["web"].deployment_id == deployment.id


async def test_a_commit_deploys_the_applications_that_it_touches_and_no_other(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        one = bench.push({"README": "x"})
        await bench.witnessed(one)
        two = bench.push({"apps/web/main.py": "x"})
        await bench.witnessed(two)

    assert [commit for name, commit in bench.desk.deployed() if name == "web"][1:] == [two]


async def test_the_reason_names_the_file(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        commit = bench.remote.commit({"apps/web/main.py": "x"})
        await bench.desk.until(lambda: len(bench.desk.created) == 2)

    reason = bench.desk.created[1].status_reason
    assert reason == f"the commit {commit[:7]} changes apps/web/main.py"


async def test_an_ignored_file_does_not_hide_a_real_one_beside_it(bench: Bench) -> None:
    ignores = "{onCommit: {ignores: ['**/*.md']}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=ignores)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        only = bench.push({"apps/web/README.md": "1"})
        await bench.witnessed(only)
        both = bench.push({"apps/web/README.md": "2", "apps/web/main.py": "2"})
        await bench.witnessed(both)

    deployed = [commit for name, commit in bench.desk.deployed() if name == "web"]
    assert only not in deployed
    assert both in deployed


async def test_files_elsewhere_that_an_application_names_are_its_own(bench: Bench) -> None:
    paths = "{onCommit: {paths: [shared]}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=paths)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        commit = bench.push({"shared/base.yaml": "x"})
        await bench.witnessed(commit)

    assert ("web", commit) in bench.desk.deployed()


async def test_an_application_that_does_not_deploy_on_commits_does_not(bench: Bench) -> None:
    disabled = "{onCommit: {disabled: true}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=disabled)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.push({"apps/web/x": "1"}))

    assert "web" not in [name for name, _ in bench.desk.deployed()]


async def test_a_restarted_piped_deploys_nothing_twice_and_misses_nothing(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
    missed = bench.push({"apps/web/x": "while nobody looked"})
    untouched = bench.push({"README": "x"})

    async with bench.running(WEB, WITNESS):
        await bench.witnessed(untouched)

    web = [commit for name, commit in bench.desk.deployed() if name == "web"]
    assert len(web) == 2
    assert web[1] == untouched
    assert missed not in web  # the newest is deployed, not each one on the way


async def test_what_is_known_of_the_last_deployment_need_not_be_asked(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
    questions = bench.desk.questions
    known = application("web", most_recently_triggered_deployment=bench.desk.last["web"])
    witness = application("witness", most_recently_triggered_deployment=bench.desk.last["witness"])

    async with bench.running(known, witness):
        await bench.witnessed(bench.push({}))

    assert bench.desk.questions == questions
    assert [name for name, _ in bench.desk.deployed()].count("web") == 1


async def test_a_commit_that_touches_nothing_is_compared_on_from_there(bench: Bench) -> None:
    """However far the last deployment is back, what was compared once is not compared again."""
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        for number in range(3):
            await bench.witnessed(bench.push({"README": str(number)}))
        touching = bench.push({"apps/web/x": "1"})
        await bench.witnessed(touching)
        reverted = bench.push({"apps/web/x": None})
        await bench.witnessed(reverted)

    web = [commit for name, commit in bench.desk.deployed() if name == "web"]
    assert web[1:] == [touching, reverted]


async def test_a_branch_that_goes_back_and_forth_is_deployed_each_time(bench: Bench) -> None:
    first = bench.head
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        second = bench.remote.commit({"apps/web/x": "1"})
        await bench.desk.until(lambda: len(bench.desk.created) == 2)
        bench.remote.git("reset", "--quiet", "--hard", first)
        await bench.desk.until(lambda: len(bench.desk.created) == 3)
        bench.remote.git("reset", "--quiet", "--hard", second)
        await bench.desk.until(lambda: len(bench.desk.created) == 4)

    assert [commit for _, commit in bench.desk.deployed()] == [first, second, first, second]
    assert len({each.id for each in bench.desk.created}) == 4


async def test_an_application_that_is_registered_later_is_deployed_at_once(bench: Bench) -> None:
    async with bench.running(WITNESS):
        await bench.witnessed(bench.head)
        bench.tell(applications=(WEB,))
        await bench.desk.until(lambda: ("web", bench.head) in bench.desk.deployed())


async def test_news_about_an_application_that_change_nothing_here_cost_nothing(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        asked = bench.desk.questions
        for number in range(20):
            bench.tell(applications=(WEB,))
            bench.tell(applications=(application("witness", description=str(number)),))
        await bench.witnessed(bench.push({}))

    assert bench.desk.questions == asked
    assert [name for name, _ in bench.desk.deployed()].count("web") == 1
    assert bench.desk.states == []


async def test_a_hundred_applications_touched_by_one_commit_are_all_deployed(bench: Bench) -> None:
    names = [f"app{number}" for number in range(100)]
    bench.remote.commit({f"apps/{name}/app.pipecd.yaml": application_file(name) for name in names})
    async with bench.running(*(application(name) for name in names)):
        await bench.desk.until(lambda: len(bench.desk.created) == 100)
        commit = bench.remote.commit({f"apps/{name}/x": "1" for name in names})
        await bench.desk.until(lambda: len(bench.desk.created) == 200)

    assert set(bench.desk.deployed()[100:]) == {(name, commit) for name in names}
    assert len(bench.handed) == 200


async def test_a_commit_seen_again_after_a_restart_is_the_same_deployment(bench: Bench) -> None:
    bench.desk.loses_reports = True
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
    bench.desk.loses_reports = False

    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        await bench.desk.until(lambda: "web" in bench.desk.last)

    web = [each for each in bench.desk.created if each.application_id == "web"]
    assert len(web) == 1
    assert bench.desk.last["web"].deployment_id == web[0].id
