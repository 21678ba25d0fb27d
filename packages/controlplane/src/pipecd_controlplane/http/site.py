# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the one address: sign-in, health, metrics, and the console's files."""

from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pipecd_controlplane.auth.door import Door
from pipecd_controlplane.auth.password import PasswordDoor
from pipecd_controlplane.auth.sso.door import SsoDoor
from pipecd_controlplane.http.console import console_routes
from pipecd_controlplane.http.cookie_jar import CookieJar
from pipecd_controlplane.http.guard import Guard
from pipecd_controlplane.http.health import health_routes
from pipecd_controlplane.http.metrics import Metrics
from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.http.scrape import Scrape
from pipecd_controlplane.http.sign_in import SignIn
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import PipecdError


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the pages are made of."""

    stores: Stores
    door: Door
    password: PasswordDoor
    sso: SsoDoor
    jar: CookieJar
    probes: Probes
    metrics: Metrics
    scrape: Scrape
    now: Now
    static_dir: Path | None = None
    over_tls: bool = False
    metrics_enabled: bool = True


def site(parts: Site) -> Guard:
    """For everybody. Metrics are for who shows an API key, and only of its project."""

    async def metrics(request: Request) -> Response:
        if not parts.metrics_enabled:
            return PlainTextResponse("")
        try:
            project_id = await parts.door.project_of_key(
                request.headers.get("authorization", ""),
                request.client.host if request.client else "",
            )
        except PipecdError as error:
            return PlainTextResponse(f"{error}\n", status_code=401)
        text = await parts.scrape.text(project_id)
        return Response(text, media_type="text/plain; version=0.0.4")

    sign_in = SignIn(parts.stores, parts.password, parts.sso, parts.jar, parts.now)
    routes = [
        *sign_in.routes(),
        *health_routes(parts.probes),
        Route("/metrics", metrics),
        *console_routes(parts.static_dir),
    ]
    return Guard(Starlette(routes=routes), over_tls=parts.over_tls, count=parts.metrics.count_http)


def admin_site(parts: Site) -> Guard:
    """For whoever runs it, on an address of its own that only they reach: all metrics."""

    async def metrics(_request: Request) -> Response:
        text = await parts.scrape.text() if parts.metrics_enabled else b""
        return Response(text, media_type="text/plain; version=0.0.4")

    async def index(_request: Request) -> Response:
        return PlainTextResponse("/healthz\n/readyz\n/version\n/metrics\n")

    routes = [*health_routes(parts.probes), Route("/metrics", metrics), Route("/", index)]
    return Guard(Starlette(routes=routes), over_tls=parts.over_tls, count=parts.metrics.count_http)
