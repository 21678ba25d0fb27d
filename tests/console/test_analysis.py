# SPDX-License-Identifier: Apache-2.0
"""What an analysis has found, in front of somebody: drawn while it goes on, with its numbers."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from pipecd_test_support.console_site import (
    PHONE,
    ConsoleSite,
    MakeVisitor,
    Visitor,
    serve_console,
)
from pipecd_test_support.web_server import Answer, Question, WebServer

PAYLOAD = "<img src=x onerror=window.stolen=1>"
FEW = "only 1 value on one side"


class Monitoring(WebServer):
    """Answers like Prometheus, with what the test sets for each query."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, list[str]] = {}
        self.give("/api/v1/query_range", self._tell)
        self.give("/health", Answer(body=b"ok"))

    def _tell(self, question: Question) -> Answer:
        name = question.query["query"][0].partition("#")[0].strip()
        points = [[1, each] for each in self.values[name]]
        data = {"resultType": "matrix", "result": [{"metric": {}, "values": points}]}
        return Answer(body=json.dumps({"status": "success", "data": data}).encode())


@pytest.fixture(scope="module")
def monitoring() -> Iterator[Monitoring]:
    with Monitoring() as server:
        yield server


@pytest.fixture(scope="module")
def site(
    console: None, monitoring: Monitoring, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleSite]:
    """A site whose piped has the plugin."""
    with serve_console(tmp_path_factory.mktemp("analysis"), with_piped=False) as serving:
        provider = {"name": "it", "type": "PROMETHEUS", "config": {"address": monitoring.url}}
        config = {"analysisProviders": [provider], "allowedHosts": ["127.0.0.1"]}
        serving.piped.commit({"README": "an example"})
        serving.piped.configure("scriptrun", {"name": "analysis", "config": config})
        serving.piped.start()
        yield serving


def metric(query: str, **more: object) -> dict[str, object]:
    return {"provider": "it", "query": query, "interval": "1s", **more}


def add(site: ConsoleSite, monitoring: Monitoring, name: str) -> str:
    """Adds an application that is analysed in three ways; returns its deployment."""
    check = {"url": f"{monitoring.url}/health", "interval": "1s"}
    metrics = [
        metric(f"errors # {PAYLOAD}", expected={"max": 0.5}, failureLimit=1000),
        metric("latency-{{ .Variant.Name }}", strategy="CANARY_BASELINE", deviation="HIGH"),
        metric("lonely", strategy="CANARY_PRIMARY"),
    ]
    stage = {"name": "ANALYSIS", "with": {"duration": "1h", "metrics": metrics, "https": [check]}}
    site.add(name, [stage])
    site.piped.pipectl("deployment", "wait", name, "--status", "RUNNING")
    return str(site.deployments(name)[0]["id"])


def set_healthy(monitoring: Monitoring) -> None:
    monitoring.values = {
        "errors": ["0.1", "0.2", "0.15", "0.12"],
        "latency-canary": ["11", "12", "10", "13"],
        "latency-baseline": ["12", "11", "13", "10"],
        "lonely": ["7"],
    }


def part(person: Visitor, analysis: str) -> Locator:
    return person.page.locator(f"[data-analysis={analysis}]")


def test_the_numbers_are_drawn_while_it_goes_on_until_the_verdict(
    visitor: MakeVisitor, site: ConsoleSite, monitoring: Monitoring
) -> None:
    person = visitor()
    person.open("/pipeds")
    person.sign_in(site.password)
    expect(person.page.get_by_text("scriptrun").first).to_be_visible()
    set_healthy(monitoring)
    deployment = add(site, monitoring, "watched")
    person.open(f"/deployments/{deployment}")
    errors, latency = part(person, "metrics-0"), part(person, "metrics-1")

    expect(errors.get_by_text("In progress")).to_be_visible()
    expect(errors.get_by_role("img")).to_have_attribute("aria-label", has_words("at most 0.5"))
    signs = errors.locator(".sign-of")
    expect(signs.nth(2)).to_be_attached()
    expect(errors.locator(".query")).to_have_text(f"errors # {PAYLOAD}")
    expect(latency.get_by_text("baseline", exact=True).first).to_be_visible()
    expect(latency.locator(".facts")).to_contain_text("p-value")
    expect(part(person, "metrics-2").locator(".analysis-warning")).to_contain_text(FEW)
    expect(part(person, "http-0").get_by_text("In progress")).to_be_visible()

    monitoring.values["errors"] = ["+Inf", "0.2"]
    expect(errors.locator(".sign-of.bad").nth(1)).to_be_attached()
    expect(errors.locator(".sample.bad .infinite").first).to_be_attached()
    monitoring.values["errors"] = ["0.2"]
    monitoring.values["latency-canary"] = ["21", "22", "23", "24"]
    expect(latency.get_by_text("Failed", exact=True)).to_be_visible()
    expect(person.stage("ANALYSIS", "STAGE_FAILURE")).to_be_visible()
    expect(person.page.locator(".panel.analysis")).to_contain_text(
        "canary is higher than baseline: canary 4 values from 21 to 24"
    )
    expect(latency.locator(".share.bad")).to_have_count(1)
    latency.get_by_text("All numbers").click()
    newest = latency.locator("tbody tr").first
    expect(newest).to_contain_text("Not as expected")
    expect(newest).to_contain_text("22.5 (21 to 24, 4 values)")
    expect(newest).to_contain_text("0.01429")
    assert is_inside(latency)
    errors.get_by_text("All numbers").click()
    expect(errors.locator("tbody tr", has_text="∞").first).to_be_visible()
    assert person.page.evaluate("window.stolen") is None
    for theme in ("light", "dark"):
        person.page.emulate_media(color_scheme=theme)
        assert person.find_axe_faults() == [], theme

    phone = visitor(size=PHONE)
    phone.open(f"/deployments/{deployment}")
    phone.sign_in(site.password)
    drawn = part(phone, "metrics-1")
    drawn.get_by_text("All numbers").click()
    expect(drawn.locator("tbody tr").first).to_contain_text("22.5")
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert is_inside(drawn)
    assert phone.find_axe_faults() == []


def test_the_picture_is_fetched_only_by_those_who_look_at_an_analysis(
    visitor: MakeVisitor, site: ConsoleSite, monitoring: Monitoring
) -> None:
    """The first page stays small."""
    person = visitor()
    person.open("/")
    person.sign_in(site.password)
    person.wait_live()

    assert not [url for url in person.requested if "AnalysisView" in url]


def is_inside(drawn: Locator) -> bool:
    """Whether the picture ends where its panel does, however wide the table below it is."""
    panel = drawn.page.locator(".panel.analysis").bounding_box()
    picture = drawn.locator("svg[role=img]").bounding_box()
    assert panel is not None
    assert picture is not None
    return picture["x"] + picture["width"] <= panel["x"] + panel["width"]


def has_words(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))
