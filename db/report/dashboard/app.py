"""The dashboard's web application: read-only pages of the database, served to this machine only."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dropbench.db.report.dashboard.live import Live
from dropbench.db.report.dashboard.pages import (
    NotFound,
    Page,
    changed_regions,
    digest_of,
    overview_page,
    suite_page,
    trial_page,
)
from dropbench.db.report.page.templates import asset, render, vega_bundle
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError, check_text
from dropbench.harness.settings import Settings

HOST = "127.0.0.1"
ALLOWED_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Host names accepted from browsers; others are rejected against DNS rebinding."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def guarded(app: ASGIApp) -> ASGIApp:
    """Return an application that accepts only GET and HEAD, and adds the security headers to every response."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = {name.encode(): value.encode() for name, value in HEADERS.items()}
                headers |= dict(message["headers"])
                message = {**message, "headers": list(headers.items())}
            await send(message)

        if scope["type"] != "http":  # no websockets
            return
        allowed = scope["method"] in ("GET", "HEAD")
        answer = app if allowed else PlainTextResponse("the dashboard is read-only\n", 405, {"allow": "GET, HEAD"})
        await answer(scope, receive, send_with_headers)

    return respond


def make_app(settings: Settings, get_activity: Callable[[Store, Settings], Any]) -> ASGIApp:
    """Return the application; arguments and errors as for `Live`."""
    live = Live(settings, get_activity)

    def endpoint(make_page: Callable[[Request], Page]) -> Callable[[Request], Response]:
        def respond(request: Request) -> Response:
            try:
                _check_texts(request)
                try:
                    page = make_page(request)
                except Exception as error:
                    live.base.explain(error)
                    raise
                if "have" in request.query_params:
                    return JSONResponse(changed_regions(page, request.query_params["have"]))
                regions = {name: (digest_of(html), html) for name, html in page.regions.items()}
                return HTMLResponse(
                    render("dashboard.html.j2", page=page, regions=regions, version=version("dropbench"))
                )
            except NotFound:
                return _message(request, 404, "This suite or trial is not in the database.")
            except (InputError, OSError, SQLAlchemyError, ValueError) as error:
                return _message(request, 503, str(error))

        return respond

    def suite(request: Request) -> Page:
        return suite_page(live, request.query_params.get("name", ""), request.query_params.get("request"))

    routes = [
        Route("/", endpoint(lambda request: overview_page(live))),
        Route("/suite", endpoint(suite)),
        Route("/trial/{id}", endpoint(lambda request: trial_page(live, request.path_params["id"]))),
        Route("/static/{name}", _static),
    ]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(ALLOWED_HOSTS), www_redirect=False)
    return guarded(Starlette(routes=routes, middleware=[hosts], exception_handlers={404: _not_found}))


def serve(
    settings: Settings, port: int, get_activity: Callable[[Store, Settings], Any], on_ready: Callable[[str], Any]
) -> None:
    """Serve on a port of this machine until Ctrl-C; port 0 is any free one. Other arguments as for `Live`.

    `on_ready` is called with the address when it accepts connections.

    Raises:
        InputError: the database is missing, or the port is taken.
    """
    import uvicorn

    app = make_app(settings, get_activity)
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror}: expected a free port, or 0 for any") from None
    with listening:
        on_ready(f"http://{HOST}:{listening.getsockname()[1]}/")
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False)
        with suppress(KeyboardInterrupt):  # uvicorn re-raises it after a clean shutdown
            uvicorn.Server(config).run(sockets=[listening])


def _check_texts(request: Request) -> None:
    """Raise NotFound if the address has a text that neither a file nor a row can have as its name."""
    for text in (*request.path_params.values(), *(request.query_params.get(key, "") for key in ("name", "request"))):
        try:
            check_text(text, "address")
        except InputError:
            raise NotFound(text) from None


def _static(request: Request) -> Response:
    """Return a script or the style sheet by name; no other file is served."""
    name = request.path_params["name"]
    if name == "plotting.js":
        headers = {"cache-control": "private, max-age=86400"}
        return Response(vega_bundle(), media_type="text/javascript", headers=headers)
    if name not in ("page.js", "live.js", "page.css"):
        return _not_found(request, None)
    return Response(asset(name), media_type="text/css" if name == "page.css" else "text/javascript")


def _not_found(request: Request, error: Exception | None) -> Response:
    return _message(request, 404, "This page does not exist.")


def _message(request: Request, status: int, text: str) -> Response:
    if "have" in request.query_params:
        return JSONResponse({"error": text}, status)
    return HTMLResponse(render("message.html.j2", text=text), status)
