# SPDX-License-Identifier: Apache-2.0
"""An application is changed, a branch is previewed, a commit is traced to what it deployed."""

import base64

from playwright.sync_api import Page, expect

from pipecd_test_support.console_site import ConsoleSite, MakeVisitor
from pipecd_wire.apiservice import service_pb2 as pb

PAYLOAD = "<img src=x onerror=window.stolen=1>"
SEND = """async ([method, body]) => {
  const message = Uint8Array.from(atob(body), each => each.charCodeAt(0))
  const framed = new Uint8Array(message.length + 5)
  new DataView(framed.buffer).setUint32(1, message.length)
  framed.set(message, 5)
  const headers = {'content-type': 'application/grpc-web+proto', 'x-grpc-web': '1'}
  const answer = await fetch(method, {method: 'POST', headers, body: framed})
  return answer.headers.get('grpc-status') ?? await answer.text()
}"""


def register_event(page: Page, request: pb.RegisterEventRequest) -> None:
    """Calls the API as the one who is signed in."""
    body = base64.b64encode(request.SerializeToString()).decode()
    answer = page.evaluate(SEND, ["/grpc.service.apiservice.APIService/RegisterEvent", body])
    assert "grpc-status: 0" in answer.lower().replace("grpc-status:0", "grpc-status: 0"), answer


def test_an_application_is_moved_to_another_target(visitor: MakeVisitor, site: ConsoleSite) -> None:
    person = visitor()
    page = person.page
    person.open("/pipeds")
    person.sign_in(site.password)
    expect(page.get_by_text("scriptrun").first).to_be_visible()
    application = site.add(
        "moving",
        [],
        files={"public/moved.html": "<h1>hello</h1>\n"},
        flags=["--deploy-target", "files=east"],
        plugins={"files": {"source": "public", "into": "moving"}},
    )
    person.open(f"/applications/{application}")
    expect(page.get_by_text("In sync").first).to_be_visible()
    facts = page.get_by_role("region", name="Facts")
    expect(facts).to_contain_text("east (files)")

    page.get_by_role("button", name="More for moving").click()
    page.get_by_role("menuitem", name="Change its piped, targets or file").click()
    dialog = page.get_by_role("dialog", name="Change moving")
    dialog.get_by_role("checkbox", name="east").uncheck()
    dialog.get_by_role("checkbox", name="west").check()
    dialog.get_by_role("button", name="Change it").click()
    expect(dialog).to_have_count(0)

    expect(facts).to_contain_text("west (files)")
    expect(facts).not_to_contain_text("east")
    page.get_by_role("button", name="Deploy", exact=True).click()
    person.confirm("Deploy")
    person.expect_deployment("DEPLOYMENT_SUCCESS")
    assert list((site.folder / "sites" / "west").rglob("moved.html"))


def test_a_branch_is_previewed(visitor: MakeVisitor, site: ConsoleSite) -> None:
    """Nothing is deployed; the address of the answer can be sent to somebody else."""
    person = visitor()
    page = person.page
    person.open("/pipeds")
    person.sign_in(site.password)
    expect(page.get_by_text("scriptrun").first).to_be_visible()
    application = site.add(
        "foreseen",
        [],
        files={"public/index.html": "<h1>before</h1>\n"},
        flags=["--deploy-target", "files=east"],
        plugins={"files": {"source": "public", "into": "foreseen"}},
    )
    person.open(f"/applications/{application}")
    expect(page.get_by_text("In sync").first).to_be_visible()
    git = site.piped.git
    git("checkout", "--quiet", "-b", "idea")
    head = site.piped.commit({"foreseen/public/index.html": f"<h1>after {PAYLOAD}</h1>\n"})
    git("checkout", "--quiet", "main")

    person.open("/previews")
    page.get_by_label("Branch that would be merged").fill("idea")
    page.get_by_label("Its newest commit").fill(head)
    page.get_by_role("button", name="Preview", exact=True).click()
    answer = page.get_by_role("region", name="foreseen")
    expect(answer).to_contain_text("files to east")
    expect(answer.locator(".diff-line.added", has_text=PAYLOAD)).to_be_visible()
    page.reload()
    expect(answer).to_contain_text("files to east")
    assert page.evaluate("window.stolen") is None
    assert len(site.deployments("foreseen")) == 1

    page.get_by_label("Its newest commit").fill("no commit")
    page.get_by_role("button", name="Preview", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()


def test_a_commit_is_traced_to_what_it_deployed(visitor: MakeVisitor, site: ConsoleSite) -> None:
    person = visitor()
    page = person.page
    person.open("/traces")
    person.sign_in(site.password)
    person.wait_live()
    source = "5ca1ab1e" * 5
    event = pb.RegisterEventRequest(
        name="image-update",
        data="v2",
        commit_hash=source,
        commit_url="javascript:window.stolen=1",
        commit_title=f"Build {PAYLOAD}",
        commit_author="Ada",
    )
    register_event(page, event)
    trace = page.get_by_role("region", name=f"Build {PAYLOAD}")
    expect(trace).to_contain_text("no deployment yet")
    expect(trace.get_by_role("link")).to_have_count(0)

    trailer = f"Pipecd-Dev-Trace-Trigger-Commit-Hash: {source}"
    run = {"name": "SCRIPT_RUN", "with": {"run": "true"}}
    site.add("traced", [run], message=f"Take v2\n\n{trailer}")
    expect(trace.get_by_role("link", name="traced")).to_be_visible()
    page.get_by_label("Commit").fill("0" * 40)
    expect(page.get_by_role("heading", name="No trace is of that commit")).to_be_visible()
    page.get_by_label("Commit").fill(source)
    trace.get_by_role("link", name="traced").click()
    person.expect_deployment("DEPLOYMENT_SUCCESS")
    assert page.evaluate("window.stolen") is None
    person.open("/events?name=image-update")
    expect(page.get_by_role("row").filter(has_text="v2")).to_be_visible()
