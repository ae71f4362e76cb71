"""The dashboard: pages of this database for this machine. It answers to no other name, and changes nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from db.report.dashboard.live import Live
from db.report.dashboard.pages import Missing, Page, changed, digest_of, overview_page, suite_page, trial_page
from db.report.page.templates import asset, plotting, render
from harness.errors import InputError
from harness.settings import Settings

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "[::1]")
"""What a browser may call this machine: another name that leads here is another site's."""

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


class Guard:
    """Only GET and HEAD, and on every answer the headers that keep it to itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.encode(): value.encode() for name, value in HEADERS.items()}
                own |= dict(message["headers"])
                message = {**message, "headers": list(own.items())}
            await send(message)

        if scope["type"] != "http":  # no websockets
            return
        app = self.app
        if scope["method"] not in ("GET", "HEAD"):
            app = PlainTextResponse("this dashboard changes nothing\n", 405, {"allow": "GET, HEAD"})
        await app(scope, receive, guarded)


def make_app(settings: Settings) -> ASGIApp:
    """The application.

    Raises:
        InputError: there is no database, or it cannot be read.
    """
    live = Live(settings)

    def shown(make: Callable[[Request], Page]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                page = make(request)
                if "have" in request.query_params:
                    return JSONResponse(changed(page, request.query_params["have"]))
                return HTMLResponse(_document(page))
            except Missing:
                return _told(request, 404, "There is no such suite or trial in this database.")
            except InputError as error:
                return _told(request, 503, str(error))

        return answer

    routes = [
        Route("/", shown(lambda request: overview_page(live))),
        Route(
            "/suite",
            shown(
                lambda request: suite_page(
                    live, request.query_params.get("name", ""), request.query_params.get("variant")
                )
            ),
        ),
        Route("/trial/{id}", shown(lambda request: trial_page(live, request.path_params["id"]))),
        Route("/static/{name}", _static),
    ]
    named = Middleware(TrustedHostMiddleware, allowed_hosts=list(NAMES), www_redirect=False)
    return Guard(Starlette(routes=routes, middleware=[named], exception_handlers={404: _not_found}))


def serve(settings: Settings, port: int, tell: Callable[[str], Any]) -> None:
    """Serve until Ctrl-C.

    Args:
        settings: where the database and the runs are.
        port: of this machine; 0: any that is free.
        tell: called with the address once it can be opened.

    Raises:
        InputError: there is no database, or the port is taken.
    """
    import uvicorn

    app = make_app(settings)
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror}: expected a free port, or 0 for any") from None
    with listening:
        tell(f"http://{HOST}:{listening.getsockname()[1]}/")
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn has ended in good order, and raises it again
            return


def _document(page: Page) -> str:
    regions = {name: (digest_of(html), Markup(html)) for name, html in page.regions.items()}
    return render("dashboard.html.j2", page=page, regions=regions, version=version("dropbench"))


def _static(request: Request) -> Response:
    """The scripts and the style sheet, by name; nothing else is a file here."""
    name = request.path_params["name"]
    if name == "plotting.js":
        return Response(plotting(), media_type="text/javascript", headers={"cache-control": "private, max-age=86400"})
    kinds = {"page.js": "text/javascript", "live.js": "text/javascript", "page.css": "text/css"}
    if name not in kinds:
        return _not_found(request, None)
    return Response(asset(name), media_type=kinds[name])


def _not_found(request: Request, error: Exception | None) -> Response:
    return _told(request, 404, "There is no such page.")


def _told(request: Request, status: int, line: str) -> Response:
    if "have" in request.query_params:
        return JSONResponse({"error": line}, status)
    return HTMLResponse(render("told.html.j2", line=line), status)
