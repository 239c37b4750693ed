"""The address of a run's controller, recorded in address.json for `resume` and `invite`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec

from barnraise.config.schema import ControllerSection
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import AddressError, RunDirectoryError
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan

if TYPE_CHECKING:
    from barnraise.controller.shell.server import Server  # it imports torch
    from barnraise.transport.handover import HandoverListener

FILE = "address.json"
"""Exists once the run has ever listened."""


Mode = Literal["train", "serve", "lab"]
"""The command that started the run."""


class Whereabouts(msgspec.Struct, frozen=True):
    """The recorded address of a run.

    `uri` is the controller's present or last address, two addresses with a space between; `mode` how the run was
    started.
    """

    uri: str
    mode: Mode


async def listen(
    server: Server, run: RunDirectory, plan: Plan, mode: Mode, handover: HandoverListener | None = None
) -> str:
    """Bind `server` on the run's earlier ports, or an open `handover` there, and record and return the URI.

    Raises AddressError.
    """
    before = recorded_uri(run)
    try:
        uri = await server.bind(address(plan.run_file.controller, before), handover)
    except AddressError as error:
        if not before:
            raise
        raise AddressError(
            f"{error}; that is in {run.run_file}. A port other than 0 there counts instead of the one that the run "
            "had; machines that joined with the old address must then join again"
        ) from None
    run.write(run.path / FILE, msgspec.json.encode(Whereabouts(uri, mode)))
    return uri


def address(controller: ControllerSection, before: str) -> str:
    """Return the address to bind: the run file's ports, and for those that are 0 the ports taken `before`.

    >>> address(ControllerSection(http_port=0), "zmq://127.0.0.1:40001 xmlrpc://127.0.0.1:40002")
    'zmq://127.0.0.1:40001 xmlrpc://127.0.0.1:40002'
    >>> address(ControllerSection(port=5000, http_port=0), "zmq://127.0.0.1:40001 xmlrpc://127.0.0.1:40002")
    'zmq://127.0.0.1:5000 xmlrpc://127.0.0.1:40002'
    """
    taken = [(split.scheme, split.port or 0) for split in map(urlsplit, before.split())]
    wanted = [("zmq" if controller.use_zmq else "xmlrpc", controller.port)]
    if controller.http_port is not None:
        wanted.append(("xmlrpc", controller.http_port))
    ports = [
        port or next((old for at, (name, old) in enumerate(taken) if (at, name) == (place, scheme)), 0)
        for place, (scheme, port) in enumerate(wanted)
    ]
    return " ".join(f"{scheme}://{controller.host}:{port}" for (scheme, _), port in zip(wanted, ports, strict=True))


def recorded_uri(run: RunDirectory) -> str:
    """Return the controller's present or last address; empty when it never had one."""
    found = _recorded(run)
    return found.uri if found else ""


def recorded_mode(run: RunDirectory) -> Mode:
    """Return `train`, `serve` or `lab`: how the run was started."""
    found = _recorded(run)
    if found is None:
        raise RunDirectoryError(f"{run.path} was never started: start it again with `barnraise train RUN.yaml`")
    return found.mode


def _recorded(run: RunDirectory) -> Whereabouts | None:
    path = run.path / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Whereabouts)
    except FileNotFoundError:
        return None
    except (OSError, *MALFORMED) as error:
        raise RunDirectoryError(
            f"{path} cannot be read ({error}): restore it, or write it again as "
            '{"uri": "zmq://HOST:PORT", "mode": "train"}, with the address that workers dial (xmlrpc for HTTP), and '
            "serve or lab for a run that was started so"
        ) from None
