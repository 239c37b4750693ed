"""A run whose files lie under a URL: workers fetch shards and base there, and nothing of them from the host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

from barnraise.account.account import manifest
from barnraise.config.load import load
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import resolve

from .test_exchange import planned, play, prepared


def test_shards_and_base_do_not_pass_through_the_host(tmp_path: Path) -> None:
    asked: set[str] = set()

    async def run() -> Any:
        app = web.Application()

        async def answer(request: web.Request) -> web.StreamResponse:
            name = request.match_info["name"]
            asked.add(name)
            return web.FileResponse(folder / name)

        app.router.add_get("/data/{name}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/data/"
        content = planned(tmp_path, adapter={"rank": 2}).run_file.model_dump(mode="json", exclude_none=True)
        content["data"]["urls"] = [url]
        plan = resolve(load(content), purpose=SERVE, nodes=2)
        made = prepared(tmp_path, plan)
        folder = made.data
        assert manifest(made).urls == (url,)
        await play(made, plan)
        await runner.cleanup()
        return made

    made = asyncio.run(run())
    files = {path.name for path in made.data.iterdir() if path.suffix in (".bin", ".safetensors")}
    assert files - {"held_out.bin"} <= asked
