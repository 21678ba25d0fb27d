# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the one address: sign-in, health, metrics, and the console's files."""

from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from pipecd_controlplane.auth.call_authenticator import CallAuthenticator
from pipecd_controlplane.auth.password import PasswordSignIn
from pipecd_controlplane.auth.sign_in_links import SignInLinks
from pipecd_controlplane.auth.sso.sign_in import SsoSignIn
from pipecd_controlplane.auth.terminal_login import TerminalLogin
from pipecd_controlplane.http.built_console import BuiltConsole
from pipecd_controlplane.http.console import console_routes
from pipecd_controlplane.http.cookies import CookieWriter
from pipecd_controlplane.http.downloads import DownloadRoutes
from pipecd_controlplane.http.health import health_routes
from pipecd_controlplane.http.hooks import HookRoutes
from pipecd_controlplane.http.metrics import Metrics
from pipecd_controlplane.http.middleware import PageMiddleware
from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.http.scrape import Scrape
from pipecd_controlplane.http.sign_in import SignInRoutes
from pipecd_controlplane.http.sign_in_link import SignInLinkRoutes
from pipecd_controlplane.http.terminal_login import TerminalLoginRoutes
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.hook_deliveries import HookDeliveries
from pipecd_controlplane.usecases.shared_state import SharedState
from pipecd_model.errors import PipecdError


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteServices:
    """The services that the routes use."""

    stores: Stores
    shared: SharedState
    authenticator: CallAuthenticator
    password: PasswordSignIn
    sso: SsoSignIn
    links: SignInLinks
    cookies: CookieWriter
    probes: Probes
    metrics: Metrics
    scrape: Scrape
    hooks: HookDeliveries
    max_hooks_bytes: int
    """Bytes of the bodies of all hooks that are held at the same time."""
    now: Now
    console_dir: Path
    static_dir: Path | None = None
    over_tls: bool = False
    metrics_enabled: bool = True


def public_app(services: RouteServices) -> PageMiddleware:
    """Returns the public application. Its metrics need an API key, and are of its project."""

    async def metrics(request: Request) -> Response:
        if not services.metrics_enabled:
            return PlainTextResponse("")
        try:
            project_id = await services.authenticator.project_of_key(
                request.headers.get("authorization", ""),
                request.client.host if request.client else "",
            )
        except PipecdError as error:
            return PlainTextResponse(f"{error}\n", status_code=401)
        text = await services.scrape.text(project_id)
        return Response(text, media_type="text/plain; version=0.0.4")

    sign_in = SignInRoutes(
        services.stores,
        services.shared,
        services.password,
        services.sso,
        services.cookies,
        services.now,
    )
    terminal = TerminalLoginRoutes(
        services.stores,
        TerminalLogin(services.stores, services.shared, services.now),
        services.password,
        services.cookies,
        services.now,
    )
    links = SignInLinkRoutes(services.stores, services.links, services.cookies, services.now)
    downloads = DownloadRoutes(services.stores, services.authenticator, services.cookies.public_url)
    hooks = HookRoutes(services.hooks, services.metrics.count_hook, services.max_hooks_bytes)
    routes: list[BaseRoute] = [
        *sign_in.routes(),
        *terminal.routes(),
        *links.routes(),
        *downloads.routes(),
        *hooks.routes(),
        *health_routes(services.probes),
        Route("/metrics", metrics),
        *console_routes(services.static_dir, BuiltConsole(services.console_dir)),
    ]
    return _add_middleware(services, routes)


def admin_app(services: RouteServices) -> PageMiddleware:
    """Returns the operator's application, with all metrics, for an address of its own."""

    async def metrics(_request: Request) -> Response:
        text = await services.scrape.text() if services.metrics_enabled else b""
        return Response(text, media_type="text/plain; version=0.0.4")

    async def index(_request: Request) -> Response:
        return PlainTextResponse("/healthz\n/readyz\n/version\n/metrics\n")

    return _add_middleware(
        services,
        [*health_routes(services.probes), Route("/metrics", metrics), Route("/", index)],
    )


def _add_middleware(services: RouteServices, routes: list[BaseRoute]) -> PageMiddleware:
    app = Starlette(routes=routes)
    return PageMiddleware(app, over_tls=services.over_tls, count=services.metrics.count_http)
