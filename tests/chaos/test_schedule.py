# SPDX-License-Identifier: Apache-2.0
"""What the schedule promises: repeatable, complete, and never more than a site can bear."""

from itertools import islice

from chaos.foreign import PLUGIN
from chaos.places import (
    ALL_STORY_PLACES,
    PLACES,
    RACE,
    RACERS,
    STORY_PLACES,
    needs_restart,
    program_of,
)
from chaos.schedule import (
    CANCEL_WITH,
    KILLS,
    MISHAPS,
    MOST_PLUGIN_DEATHS,
    PLACES_PER_ROUND,
    STORIES,
    STORIES_PER_ROUND,
    Round,
    drawn,
    rounds,
)
from chaos.seams.chaos_wrapped import LATER

MANY = 400


def many(seed: str) -> list[Round]:
    return list(islice(rounds(seed), MANY))


def test_the_same_seed_gives_the_same_rounds() -> None:
    assert many("seed") == many("seed")
    assert many("seed") != many("other")


def test_a_round_can_be_drawn_alone() -> None:
    assert drawn("seed", 17) == many("seed")[17]


def test_the_first_round_is_peaceful() -> None:
    first = many("seed")[0]
    assert first == Round(number=0, stories=first.stories)
    assert {each.name for each in first.stories} == set(STORIES)


def test_every_place_comes_once_in_every_deck() -> None:
    per_deck = -(-(len(PLACES) + 1) // PLACES_PER_ROUND)
    drawn_places = [place for plan in many("seed")[1 : per_deck + 1] for place in plan.places]
    deck = [place for place in drawn_places if place not in {*LATER, *ALL_STORY_PLACES}]
    assert len(deck) == len(set(deck))
    # Those that take part in the race are left out of its round.
    assert {*PLACES, RACE} - set(deck) <= set(RACERS)
    reached = {place for plan in many("seed") for place in plan.places}
    assert reached == {*PLACES, *LATER, *ALL_STORY_PLACES, RACE}


def test_what_an_older_kit_has_drawn_is_still_drawn() -> None:
    places = set(drawn("71", 65).places) - set(LATER) - set(ALL_STORY_PLACES)
    assert places == {
        "control plane.commit.before",
        "control plane.ReportDeploymentCompleted",
        "piped.execute.after",
        "piped.completed.before",
        "piped.records-removed.before",
        "piped.deliver.before",
        "shim.exit-record",
        RACE,
    }


def test_every_variant_of_every_story_comes() -> None:
    told = [each for plan in many("seed") for each in plan.stories]
    assert {(each.name, each.variant) for each in told} == {
        (name, variant) for name, variants in STORIES.items() for variant in variants
    }
    assert {each.is_early for each in told} == {False, True}
    for plan in many("seed")[1:]:
        assert len({each.name for each in plan.stories}) == STORIES_PER_ROUND


def test_a_place_of_a_story_comes_with_it() -> None:
    for plan in many("seed"):
        there = {
            place
            for each in plan.stories
            for name in (each.name, str(each))
            for place in STORY_PLACES.get(name, ())
        }
        assert set(plan.places) & set(ALL_STORY_PLACES) <= there


def test_a_cancel_meets_every_death_that_it_can() -> None:
    assert {plan.cancel_with for plan in many("seed")} == set(CANCEL_WITH)


def test_the_plugin_of_another_maker_is_hit_as_well() -> None:
    hit = [each.plugins[0] for plan in many("seed") for each in plan.injections]
    assert 0.1 < hit.count(PLUGIN) / len(hit) < 0.5


def test_all_kinds_of_mishaps_come() -> None:
    injections = [each for plan in many("seed") for each in plan.injections]
    assert {each.kind for each in injections} == set(MISHAPS)
    assert {each.what for each in injections if each.kind == "kill"} == set(KILLS)


def test_a_place_of_the_start_comes_with_a_death_of_piped() -> None:
    for plan in many("seed"):
        if needs_restart(plan.places):
            assert any(each.kind == "kill" and "piped" in each.victims for each in plan.injections)


def test_a_plugin_is_never_lost_so_often_that_it_counts_as_broken() -> None:
    for plan in many("seed"):
        deaths = sum(program_of(place) == "plugin" for place in plan.places)
        deaths += sum(each.kind == "kill" and "plugin" in each.victims for each in plan.injections)
        assert deaths <= MOST_PLUGIN_DEATHS
