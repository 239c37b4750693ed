"""Where a controller may send its workers: to no network that its own address is not in."""

from __future__ import annotations

import asyncio

import pytest

from barnraise.transport.reach import MAY_NAME, AddressReach, own_reach, reach, within

INTERNET, NETWORK, LINE, MACHINE = "8.8.8.8", "192.168.1.7", "169.254.169.254", "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (INTERNET, AddressReach.INTERNET),
        ("2001:4860:4860::8888", AddressReach.INTERNET),
        (NETWORK, AddressReach.NETWORK),
        ("172.16.0.1", AddressReach.NETWORK),
        ("fd00::1", AddressReach.NETWORK),
        ("fec0::1", AddressReach.NETWORK),
        ("64:ff9b::a00:1", AddressReach.NETWORK),
        ("64:ff9b::808:808", AddressReach.INTERNET),
        ("64:ff9b:1::1", AddressReach.NETWORK),
        ("2002:a00:1::", AddressReach.NETWORK),
        ("::10.0.0.1", AddressReach.NETWORK),
        ("100.64.1.1", AddressReach.NETWORK),
        (LINE, AddressReach.LINE),
        ("fe80::1%eth0", AddressReach.LINE),
        ("224.0.0.1", AddressReach.LINE),
        (MACHINE, AddressReach.MACHINE),
        ("0.0.0.0", AddressReach.MACHINE),
        ("::", AddressReach.MACHINE),
        ("::ffff:127.0.0.1", AddressReach.MACHINE),
        ("::ffff:10.0.0.1", AddressReach.NETWORK),
    ],
)
def test_reach(address: str, expected: AddressReach) -> None:
    assert reach(address) is expected


@pytest.mark.parametrize(
    ("own", "may", "may_not"),
    [
        (INTERNET, [INTERNET], [NETWORK, LINE, MACHINE]),
        (NETWORK, [INTERNET, NETWORK], [LINE, MACHINE]),
        (LINE, [INTERNET, NETWORK, LINE], [MACHINE]),
        (MACHINE, [INTERNET, NETWORK, MACHINE], [LINE]),
    ],
)
def test_a_controller_names_no_addresses_that_mean_another_machine_from_where_it_is(
    own: str, may: list[str], may_not: list[str]
) -> None:
    async def answers(addresses: list[str]) -> list[str | None]:
        allowed = MAY_NAME[await own_reach(f"zmq://{own}:7000 xmlrpc://{own}:7001")]
        return [await within(f"zmq://{address}:1", allowed) for address in addresses]

    assert asyncio.run(answers(may)) == [f"zmq://{address}:1" for address in may]
    assert asyncio.run(answers(may_not)) == [None] * len(may_not)


def test_a_second_address_and_a_name_are_looked_at_too() -> None:
    async def play() -> None:
        internet = MAY_NAME[AddressReach.INTERNET]
        assert await within(f"zmq://{INTERNET}:1 xmlrpc://[::1]:2", internet) is None
        assert await within("zmq://localhost:1", internet) is None
        found = await within("zmq://localhost:1", MAY_NAME[AddressReach.MACHINE])
        assert found in ("zmq://127.0.0.1:1", "zmq://[::1]:1"), "in numbers: it cannot come to mean another"
        assert await within("zmq://no-such-host.invalid:1", internet) == ""

    asyncio.run(play())
