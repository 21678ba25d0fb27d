# SPDX-License-Identifier: Apache-2.0
"""Pages without scripts: signing in, and confirming the sign-in of a program in a terminal.

Whatever comes from outside is escaped here, by `_page` and the functions below it.
"""

from datetime import UTC, datetime
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.auth.terminal_login import format_code
from pipecd_controlplane.http.content_policy import allow_style
from pipecd_controlplane.usecases.shared_state import LoginRequest
from pipecd_wire.pipecd.api import access_pb2

TERMINAL_PATH: Final = "/auth/terminal"
NEXT_PATHS: Final = frozenset({"/", TERMINAL_PATH})
"""Where a sign-in may lead to: a form names one of these, and nothing else is followed."""

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 3rem auto; padding: 0 1rem }
label { display: block; margin: .6rem 0 } input { font: inherit; width: 100%; padding: .4rem }
button { font: inherit; padding: .4rem 1rem; margin: .6rem .6rem 0 0 }
code { font-size: 1.3rem } dt { font-weight: bold } dd { margin: 0 0 .5rem }
.warning { border-left: .3rem solid #c60; padding-left: .8rem }
"""
_POLICY: Final = allow_style(_STYLE)


def show_sign_in(error: str = "", project: str = "", status: int = 200) -> HTMLResponse:
    """Returns the form for a name and a password, or for single sign-on."""
    return _page(
        "Sign in to PipeCD",
        f"""{_warn(error)}
<p>A program in a terminal wants to sign in. Sign in here first; then type its code.</p>
<form method="post" action="/auth/login/static">
<input type="hidden" name="next" value="{TERMINAL_PATH}">
<label>Project <input name="project" value="{escape(project)}" required></label>
<label>User name <input name="username" autocomplete="username" required></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required>
</label>
<button>Sign in</button>
<button formaction="/auth/login" formnovalidate>Single sign-on</button>
</form>""",
        status=status,
    )


def show_code_form(session: access_pb2.Session, error: str = "", status: int = 200) -> HTMLResponse:
    """Returns the form for the code that the terminal shows."""
    return _page(
        "Sign in a terminal",
        f"""{_warn(error)}
<p>You are signed in as <b>{escape(session.subject)}</b> to the project
<b>{escape(session.project_id)}</b>.</p>
<form method="post" action="{TERMINAL_PATH}">
<label>The code that <code>pipectl login</code> shows
<input name="code" autocomplete="off" autocapitalize="characters" spellcheck="false" maxlength="20"
 placeholder="XXXX-XXXX" required autofocus></label>
<button>Continue</button>
</form>
{_sign_out()}""",
        status=status,
    )


def show_question(session: access_pb2.Session, request: LoginRequest, address: str) -> HTMLResponse:
    """Returns the page that says who asks, and takes the answer."""
    elsewhere = network(request.address) != network(address)
    place = escape(request.address or "unknown")
    if elsewhere:
        place += f" <b>(this browser is at {escape(address or 'an unknown address')})</b>"
    end = datetime.fromtimestamp(session.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return _page(
        "Let this terminal in?",
        f"""<dl>
<dt>Code</dt><dd><code>{escape(format_code(request.user_code))}</code></dd>
<dt>Program, as it calls itself</dt><dd>{escape(request.client or "no name")}</dd>
<dt>It asks from</dt><dd>{place}</dd>
<dt>It would be</dt><dd>{escape(session.subject)}, in the project {escape(session.project_id)},
until {end}</dd>
</dl>
<p class="warning">Confirm only if you have typed <code>pipectl login</code> yourself just now, and
your own terminal shows this code. If somebody sent you the code, refuse: it would give them your
rights.</p>
<form method="post" action="{TERMINAL_PATH}/answer">
<input type="hidden" name="code" value="{escape(request.user_code)}">
<button name="answer" value="confirm">Confirm</button>
<button name="answer" value="refuse">Refuse</button>
</form>""",
    )


def show_end(*, is_confirmed: bool) -> HTMLResponse:
    if is_confirmed:
        text = "The terminal is signed in. You can close this page."
    else:
        text = "The terminal was refused. You can close this page."
    return _page("Done", f"<p>{text}</p>{_sign_out()}")


def show_refusal(error: str, status: int, again: str = TERMINAL_PATH) -> HTMLResponse:
    """Returns a page with a sentence, for a request that cannot be answered."""
    onward = f'<p><a href="{escape(again)}">Begin again</a></p>' if again else ""
    return _page("That did not work", f"{_warn(error)}{onward}", status=status)


def show_link(path: str, script: str) -> HTMLResponse:
    """Returns the page behind a one-time link: its script sends the form."""
    return _page(
        "Signing in",
        f"""<p id="told">One moment.</p>
<noscript><p class="warning">A sign-in link needs JavaScript.</p></noscript>
<form method="post" action="{escape(path)}"><input type="hidden" name="secret"></form>
<script src="{escape(script)}"></script>""",
    )


def show_no_console() -> HTMLResponse:
    """Returns the start page of a server whose console is not built."""
    return _page(
        "PipeCD control plane",
        f"""<p>The console is not built yet. In a checkout, build it with <code>make console</code>;
the quickstart builds it by itself. This page is the console as soon as it is there.</p>
<p>Everything else works: <code>pipectl</code>, the API, and
<a href="{TERMINAL_PATH}">signing in a terminal</a>.</p>""",
    )


def show_onward(path: str) -> HTMLResponse:
    """Returns a page that leads on by itself.

    A redirect would not do after single sign-on: the browser comes from the provider's site, and
    sends a cookie that is `SameSite=Strict` only when a page of ours leads on.
    """
    target = escape(path)
    return _page(
        "One moment",
        f'<p><a href="{target}">Continue</a></p>',
        head=f'<meta http-equiv="refresh" content="0; url={target}">',
    )


def _sign_out() -> str:
    return '<form method="post" action="/auth/logout"><button>Sign out</button></form>'


def _warn(error: str) -> str:
    return f'<p class="warning">{escape(error)}</p>' if error else ""


def _page(title: str, body: str, *, head: str = "", status: int = 200) -> HTMLResponse:
    return HTMLResponse(
        f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">{head}
<style>{_STYLE}</style></head>
<body><h1>{escape(title)}</h1>
{body}
</body></html>
""",
        status_code=status,
        headers={"cache-control": "no-store", "content-security-policy": _POLICY},
    )
