"""Attacks by keys: of small order, which hide nothing and anybody signs for; API keys that outlive their end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from nacl.bindings import crypto_scalarmult
from nacl.public import PrivateKey
from nacl.signing import SigningKey
from typer.testing import CliRunner

from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.protocol.keys import BadKeys, DeviceKeys, PublicKeys, require_sound
from coterie.secure_sums.circle import fingerprint_words, invitation
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2 as pb
from coterie_cli.main import app
from services.kit.errors import InvalidInput, NotFound, Unauthenticated
from tests.attacks.test_attacks_on_the_door import serving
from tests.contract.gateway.conftest import platform
from tests.contract.gateway.fakes import FakePlatform
from tests.contract.trust.conftest import World, speak_as, world

__all__ = ["platform", "world"]

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

SMALL_X25519 = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
"""Every u of small order, 0, 1 and -1 also as they are written beyond p."""

SMALL_ED25519 = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
"""All eight points whose order divides eight."""

ODD_ED25519 = [
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # 1 written beyond p
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # 0 written beyond p
    "0100000000000000000000000000000000000000000000000000000000000080",  # 1 with a sign it cannot have
    "0200000000000000000000000000000000000000000000000000000000000000",  # on no point of the curve
]

Point = tuple[int, int]


def add(a: Point, b: Point) -> Point:
    """The law of the twisted Edwards curve -x² + y² = 1 + dx²y²."""
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    return (
        (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P,
    )


def times(scalar: int, point: Point) -> Point:
    total: Point = (0, 1)
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point, scalar = add(point, point), scalar >> 1
    return total


def point_with(y: int) -> Point | None:
    """A point of the curve with that y, if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    return (x, y) if x * x % P == square else None


def torsion() -> set[Point]:
    """The points whose order divides eight, found by multiplying points of any order by L."""
    for y in range(2, 100):
        point = point_with(y)
        if point is not None:
            generator = times(L, point)
            result = {times(k, generator) for k in range(8)}
            if len(result) == 8:
                return result
    raise AssertionError("no point has full order")


def test_the_vectors_are_the_points_of_small_order() -> None:
    """Derived here by the curve's own law, by another route than the library's."""
    points = torsion()
    written = {(y | (x & 1) << 255).to_bytes(32, "little").hex() for x, y in points}
    assert written == set(SMALL_ED25519)
    images = {(1 + y) * pow(1 - y, -1, P) % P for _, y in points if y != 1} | {0, 1, P - 1}
    assert {int.from_bytes(bytes.fromhex(text), "little") % P for text in SMALL_X25519} == images


@pytest.mark.parametrize("text", SMALL_X25519)
def test_a_sealing_key_of_small_order_hides_nothing_and_is_refused(text: str) -> None:
    key = bytes.fromhex(text)
    with pytest.raises(RuntimeError):
        crypto_scalarmult(bytes(PrivateKey.generate()), key)  # the secret shared with it would be all zeros
    honest = SigningKey.generate()
    with pytest.raises(BadKeys, match="sealing key is not an x25519 key, or one of small order"):
        require_sound(bytes(honest.verify_key), key)


@pytest.mark.parametrize("text", SMALL_ED25519 + ODD_ED25519)
def test_a_signing_key_of_small_order_or_none_at_all_is_refused(text: str) -> None:
    sealing = bytes(PrivateKey.generate().public_key)
    with pytest.raises(BadKeys, match="signing key is not an ed25519 key, or one of small order"):
        require_sound(bytes.fromhex(text), sealing)
    with pytest.raises(BadKeys):
        PublicKeys(bytes.fromhex(text), sealing, bytes(64)).verify()


def test_honest_keys_are_sound() -> None:
    for _ in range(50):
        DeviceKeys.generate().rotated().public().verify()


async def register(world: World, token: str, signing: SigningKey, keys: tuple[bytes, bytes]) -> pb.Device:
    device = pb.Device(name="lamp", kind="lamp", signing_key=keys[0], sealing_key=keys[1])
    proof = signing.sign(keys[1]).signature
    request = pb.RegisterDeviceRequest(token=token, device=device, proof=proof)
    return (await world.registry.RegisterDevice(request)).device


async def test_keys_of_small_order_are_neither_registered_nor_rotated_to(world: World) -> None:
    token = await world.token(await world.owner("ada"))
    signing, sealing = SigningKey.generate(), bytes(PrivateKey.generate().public_key)
    own = bytes(signing.verify_key)
    for text in SMALL_X25519:
        with pytest.raises(InvalidInput, match=r"sealing.key"):
            await register(world, token, signing, (own, bytes.fromhex(text)))
    for text in SMALL_ED25519:
        with pytest.raises(InvalidInput, match=r"signing.key"):
            await register(world, token, signing, (bytes.fromhex(text), sealing))
    device = await register(world, token, signing, (own, sealing))
    speak_as("device", device.id, device.owner_id)

    async def rotate(key: bytes) -> pb.Device:
        proof = signing.sign(own + key).signature
        request = pb.RotateKeysRequest(device_id=device.id, signing_key=own, sealing_key=key, proof=proof)
        return await world.registry.RotateKeys(request)

    for text in SMALL_X25519:
        with pytest.raises(InvalidInput, match=r"sealing.key"):
            await rotate(bytes.fromhex(text))
    assert (await rotate(bytes(PrivateKey.generate().public_key))).key_version == device.key_version + 1


async def test_publisher_cannot_rotate_key_beyond_its_end_nor_again_in_its_grace(world: World) -> None:
    trial = pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_PUBLISHER, name="trial", expires_at=world.clock.time + 60)
    lent = await world.registry.CreateKey(trial)
    lasting = await world.registry.CreateKey(pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_PUBLISHER, name="lab"))
    speak_as("publisher", lent.principal.subject)
    longer = await world.registry.RotateKey(pb.RotateKeyRequest(key_id=lent.id, grace_seconds=3600, expires_at=1e12))
    speak_as("publisher", lasting.principal.subject)
    request = pb.RotateKeyRequest(key_id=lasting.id, grace_seconds=60)
    honest = await world.registry.RotateKey(request)
    second = await world.registry.RotateKey(request)  # by another holder of the old key
    world.clock.time += 60
    for ended in (lent, longer, lasting, second):
        with pytest.raises(Unauthenticated, match="has expired"):
            await world.registry.Authenticate(pb.AuthenticateRequest(api_key=ended.api_key))
    await world.registry.Authenticate(pb.AuthenticateRequest(api_key=honest.api_key))
    speak_as("admin", "adm_1")
    with pytest.raises(NotFound, match="cannot be rotated"):
        await world.registry.RotateKey(pb.RotateKeyRequest(key_id=longer.id, grace_seconds=60))
    given = await world.registry.RotateKey(pb.RotateKeyRequest(key_id=honest.id, expires_at=world.clock.time + 9999))
    world.clock.time += 9998
    await world.registry.Authenticate(pb.AuthenticateRequest(api_key=given.api_key))


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_owners_compare_a_strangers_device_key_and_learn_nothing_else(
    world: World, platform: FakePlatform, tmp_path: Path
) -> None:
    """The whole way: command line, gateway and registry, for two owners the platform knows nothing common of."""
    homes = {name: DeviceHome(tmp_path / name) for name in ("ada", "bob")}
    tokens = {name: await world.token(await world.owner(name)) for name in homes}
    async with serving(platform, tmp_path / "data", trust_address=f"127.0.0.1:{world.app.port}", insecure=True) as port:
        url = f"http://127.0.0.1:{port}"
        ada, bob = [
            await asyncio.to_thread(register_device, home, url, tokens[name], name=name) for name, home in homes.items()
        ]
        at_ada = ["--home", str(homes["ada"].folder)]
        words_of_bob = fingerprint_words(homes["bob"].keys().public().signing)
        other_words = fingerprint_words(homes["ada"].keys().public().signing)

        async def circle(*arguments: str) -> Any:
            return await asyncio.to_thread(CliRunner().invoke, app, ["circle", *arguments, *at_ada])

        assert (await circle("add", bob.id, "--words", other_words)).exit_code != 0
        assert homes["ada"].circle().members == {}
        assert (await circle("add", bob.id, "--words", words_of_bob)).exit_code == 0
        assert (await circle("remove", bob.id)).exit_code == 0
        assert words_of_bob in (await circle("verify", bob.id, "--yes")).output
        assert [*homes["ada"].circle().members] == [bob.id]
        small = invitation("dev_x", bytes.fromhex(SMALL_ED25519[0]), "own_x")
        assert "small order" in str((await circle("add", small)).exception)
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {ada.api_key}"}) as stranger:
            public_keys = (await stranger.get(f"/v1/devices/{bob.id}/keys")).json()
            assert public_keys.keys() == {"id", "owner_id", "signing_key", "sealing_key", "key_version"}
            assert (await stranger.get(f"/v1/devices/{bob.id}")).status_code == 403
            anonymous = await stranger.get(f"/v1/devices/{bob.id}/keys", headers={"Authorization": ""})
            assert anonymous.status_code == 401
