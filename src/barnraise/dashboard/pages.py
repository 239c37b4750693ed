"""The addresses of a dashboard: pages, views and their streams, stories, actions, metrics."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from barnraise.account.page.assets import STATIC, page
from barnraise.account.page.pictures import VIEWS, joining, lanes, own
from barnraise.account.page.veil import Veil
from barnraise.account.why import why_resting
from barnraise.core.errors import BarnraiseError, InputError
from barnraise.core.text import printable
from barnraise.dashboard.acting import Acting
from barnraise.dashboard.feed import Feed, UnreadableError, veil_of
from barnraise.dashboard.metrics import CONTENT_TYPE, exposition
from barnraise.dashboard.passes import GUEST, NODE, Pass
from barnraise.dashboard.qr import drawn
from barnraise.dashboard.stories import events, story
from barnraise.dashboard.trial import Trials

MOST_LANES, MOST_BODY = 100, 20_000
"""Lanes in one answer, and bytes of a request."""

Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """Answers the requests for one run."""

    def __init__(self, feed: Feed, acting: Acting, trials: Trials) -> None:
        self._feed, self._acting, self._trials = feed, acting, trials

    def application(self) -> Starlette:
        """Return the application of all addresses."""
        routes = [
            ("/", self.home, "GET"),
            ("/join", self.join, "GET"),
            ("/me", self.me, "GET"),
            ("/static/{name}", self.static, "GET"),
            ("/data/{view}", self.data, "GET"),
            ("/stream/{view}", self.stream, "GET"),
            ("/lanes", self.lanes, "GET"),
            ("/story/{what:path}", self.story, "GET"),
            ("/why/{node:path}", self.why, "GET"),
            ("/events", self.events, "GET"),
            ("/qr", self.qr, "GET"),
            ("/metrics", self.metrics, "GET"),
            ("/try", self.attempt, "POST"),
            ("/act/{name}", self.act, "POST"),
        ]
        return Starlette(routes=[Route(path, _safe(handler), methods=[method]) for path, handler, method in routes])

    async def home(self, request: Request) -> Response:
        """Return the page of the run; of a node's own token that node's page, of a guest's the join page."""
        seen = _pass(request)
        if not seen.sees_run:
            return RedirectResponse("/me" if seen.role == NODE else "/join", 303)
        return Response(page("run"), media_type="text/html")

    async def join(self, request: Request) -> Response:
        return Response(page("join"), media_type="text/html")

    async def me(self, request: Request) -> Response:
        return Response(page("me"), media_type="text/html")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            raise InputError("no such file")
        content = resources.files("barnraise.account.page").joinpath("static", name).read_bytes()
        return Response(content, media_type=STATIC[name], headers={"cache-control": "private, max-age=600"})

    async def data(self, request: Request) -> Response:
        """Return one view as a whole."""
        view, seen = request.path_params["view"], _pass(request)
        if view == "who":
            return _json({"role": seen.role, "acts": seen.acts, "names": seen.sees_names, "can": self._can(seen)})
        if view == "me" and seen.sees_names | (seen.role == NODE):
            node = seen.node or request.query_params.get("node", "")
            return _json(own(await self._feed.moment(), node, Veil()))
        if view == "join":
            return _json(joining(await self._feed.moment(60.0)))
        if not seen.sees_run or view not in VIEWS:
            raise InputError("this link does not open that")
        content = await self._feed.whole(view, not seen.sees_names)
        return Response(content, media_type="application/json", headers={"content-encoding": "gzip"})

    async def stream(self, request: Request) -> Response:
        """Return the changes of a view from number `after` on, as server-sent events."""
        view, seen = request.path_params["view"], _pass(request)
        if not seen.sees_run or view not in VIEWS:
            raise InputError("this link does not open that")
        told = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        after = int(told) if told.isdecimal() and len(told) < 15 else 0
        return StreamingResponse(
            self._feed.follow(view, not seen.sees_names, after), media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )  # fmt: skip

    async def lanes(self, request: Request) -> Response:
        """Return the lanes of the workers that the page shows."""
        seen = _pass(request)
        if not seen.sees_run:
            raise InputError("this link does not open that")
        wanted = request.query_params.getlist("node")[:MOST_LANES]
        moment = await self._feed.moment(5.0)
        veil = veil_of(moment, not seen.sees_names)
        shown = {veil.name(one.node): one.node for one in moment.account.nodes}
        return _json({
            "width": moment.over_time.activity.width,
            "lanes": lanes(moment, [shown[name] for name in wanted if name in shown], veil),
        })  # fmt: skip

    async def story(self, request: Request) -> Response:
        """Return the story of a node or an assignment."""
        seen, what = _pass(request), request.path_params["what"]
        _names_needed(seen, what)
        return _json(await run_in_threadpool(story, self._acting.run, what))

    async def why(self, request: Request) -> Response:
        """Return why a node rests."""
        seen, node = _pass(request), request.path_params["node"]
        _names_needed(seen, node)
        moment = await self._feed.moment()
        shown = {Veil().name(one.node): one.node for one in moment.account.nodes}
        return _json({"why": why_resting(moment, shown.get(node, node))})

    async def events(self, request: Request) -> Response:
        """Return the newest events of some kinds, of one node or of all."""
        _names_needed(_pass(request), None)
        asked = request.query_params
        moment = await self._feed.moment()
        return _json(await run_in_threadpool(events, moment, asked.get("kinds", ""), asked.get("node", "")))

    async def qr(self, request: Request) -> Response:
        return _json({"image": drawn(request.query_params.get("text", ""))})

    async def metrics(self, request: Request) -> Response:
        if not _pass(request).sees_names:
            raise InputError("this link does not open that")
        moment = await self._feed.moment(0.2)
        return Response(await run_in_threadpool(exposition, moment), media_type=CONTENT_TYPE)

    async def attempt(self, request: Request) -> Response:
        """Let the run's newest model answer a text."""
        if not _pass(request).acts:
            raise InputError("the model answers the host alone: open the page by the address that the command printed")
        given = await _body(request)
        return _json({"text": await run_in_threadpool(self._trials.answer, str(given.get("text", "")))})

    async def act(self, request: Request) -> Response:
        """Do what the host asks for: finish, pause, continue, revoke, invite, share."""
        if not _pass(request).acts:
            raise InputError("only the host may do that: open the page by the address that the command printed")
        return _json(await run_in_threadpool(self._acting.act, request.path_params["name"], await _body(request)))

    def _can(self, seen: Pass) -> list[str]:
        return [*self._acting.names, *(["try"] if self._trials.there else [])] if seen.acts else []


def _pass(request: Request) -> Pass:
    found: Pass = request.scope["pass"]
    return found


def _names_needed(seen: Pass, node: str | None) -> None:
    """Raise InputError for a visitor who may not see that node."""
    if not seen.sees_names and not (seen.role == NODE and node == seen.node):
        raise InputError("an observer's or guest's link does not open that" if seen.role != GUEST else "no such page")


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BODY:
            raise InputError(f"the request has more than {MOST_BODY:,} bytes")
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        raise InputError("the request is no JSON") from None
    if not isinstance(found, dict):
        raise InputError("the request is no JSON object")
    return found


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _safe(handler: Handler) -> Handler:
    """Return a handler that answers errors with their message."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except BarnraiseError as error:
            if not isinstance(error, UnreadableError):
                return JSONResponse({"error": printable(str(error), 500)}, 400)
            told = f"the run cannot be read now: {printable(str(error), 500)}"
            if request.url.path == "/metrics":
                return PlainTextResponse(f"{told}\n", 503)
            return JSONResponse({"error": told}, 503)

    return answer
