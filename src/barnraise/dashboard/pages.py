"""The addresses of a dashboard: pages, views and their streams, stories, actions, metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from barnraise.account.moment import RunMoment
from barnraise.account.page.assets import STATIC, content, page
from barnraise.account.page.pictures import VIEWS, joining, lanes, own
from barnraise.account.page.veil import Veil
from barnraise.account.why import why_resting
from barnraise.core.errors import BarnraiseError, InputError
from barnraise.core.text import printable
from barnraise.dashboard.acting import Acting
from barnraise.dashboard.feed import Feed, UnreadableError, veil_of
from barnraise.dashboard.metrics import CONTENT_TYPE, exposition
from barnraise.dashboard.passes import NODE, Pass
from barnraise.dashboard.qr import drawn
from barnraise.dashboard.stories import events, story
from barnraise.dashboard.trial import Trials

MOST_LANES, MOST_BODY, BODY_SECONDS = 100, 20_000, 10.0
"""Lanes in one answer, bytes of a request, and seconds in which those have to come."""

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
        return Response(content(name), media_type=STATIC[name], headers={"cache-control": "private, max-age=600"})

    async def data(self, request: Request) -> Response:
        """Return one view as a whole."""
        view, seen = request.path_params["view"], _pass(request)
        if view == "who":
            return _json({"role": seen.role, "acts": seen.acts, "names": seen.sees_names, "can": self._can(seen)})
        if view == "me" and seen.sees_names | (seen.role == NODE):
            node = seen.node or request.query_params.get("node", "")
            return _json(await self._feed.ask(lambda moment: own(moment, node, Veil())))
        if view == "join":
            return _json(await self._feed.ask(joining, 60.0))
        if not seen.sees_run or view not in VIEWS:
            raise InputError("this link does not open that")
        whole = await self._feed.whole(view, not seen.sees_names)
        return Response(whole, media_type="application/json", headers={"content-encoding": "gzip"})

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
        wanted, veiled = request.query_params.getlist("node")[:MOST_LANES], not seen.sees_names

        def shown(moment: RunMoment) -> dict[str, Any]:
            veil = veil_of(moment, veiled)
            nodes = {veil.name(one.node): one.node for one in moment.account.nodes}
            found = lanes(moment, [nodes[name] for name in wanted if name in nodes], veil)
            return {"width": moment.over_time.activity.width, "lanes": found}

        return _json(await self._feed.ask(shown, 5.0))

    async def story(self, request: Request) -> Response:
        """Return the story of a node or an assignment."""
        _names_needed(_pass(request))
        return _json(await run_in_threadpool(story, self._acting.run, request.path_params["what"]))

    async def why(self, request: Request) -> Response:
        """Return why a node rests."""
        _names_needed(_pass(request))
        wanted = request.path_params["node"]

        def told(moment: RunMoment) -> dict[str, str]:
            nodes = {Veil().name(one.node): one.node for one in moment.account.nodes}
            return {"why": why_resting(moment, nodes.get(wanted, wanted))}

        return _json(await self._feed.ask(told))

    async def events(self, request: Request) -> Response:
        """Return the newest events of some kinds, of one node or of all."""
        _names_needed(_pass(request))
        kinds, node = request.query_params.get("kinds", ""), request.query_params.get("node", "")
        return _json(await self._feed.ask(lambda moment: events(moment, kinds, node), 2.0))

    async def qr(self, request: Request) -> Response:
        return _json({"image": await run_in_threadpool(drawn, request.query_params.get("text", ""))})

    async def metrics(self, request: Request) -> Response:
        if not _pass(request).sees_names:
            raise InputError("this link does not open that")
        return Response(await self._feed.ask(exposition, 0.2), media_type=CONTENT_TYPE)

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


def _names_needed(seen: Pass) -> None:
    """Raise InputError for a visitor who sees no names."""
    if not seen.sees_names:
        raise InputError("this link does not open that")


async def _body(request: Request) -> dict[str, Any]:
    given = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                given += part
                if len(given) > MOST_BODY:
                    raise InputError(f"the request has more than {MOST_BODY:,} bytes")
    except TimeoutError:
        raise InputError(f"the request did not come within {BODY_SECONDS:g} s") from None
    try:
        found = json.loads(given or b"{}")
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
