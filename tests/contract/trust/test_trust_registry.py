"""The registry over gRPC, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import math
import stat
from typing import Any

import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.errors import (
    AlreadyExists,
    Conflict,
    CoterieError,
    Exhausted,
    InvalidInput,
    NotFound,
    PermissionDenied,
    TooLarge,
    Unauthenticated,
)
from services.kit.runtime.settings import ServiceSettings
from services.trust.app import App
from services.trust.settings import TrustSettings
from services.trust.usecases.credentials import new_credential
from tests.contract.trust.conftest import START, Hand, Keypair, World, open_world, speak_as


async def refused(kind: type[CoterieError], reason: str, call: Any) -> CoterieError:
    with pytest.raises(kind) as caught:
        await call
    assert caught.value.reason == reason
    return caught.value


async def test_an_owner_is_created_once_by_name(world: World) -> None:
    first = await world.registry.CreateOwner(pb.CreateOwnerRequest(name="Ada"))
    again = await world.registry.CreateOwner(pb.CreateOwnerRequest(name="Ada", sharing="all"))
    assert first == again
    assert (first.sharing, first.created_at) == ("own", START)
    assert await world.registry.GetOwner(pb.GetOwnerRequest(owner_id=first.id)) == first


async def test_owners_come_in_pages_of_ids(world: World) -> None:
    made = sorted([await world.owner(f"Owner {k}") for k in range(5)])
    first = await world.registry.ListOwners(pb.ListOwnersRequest(limit=3))
    rest = await world.registry.ListOwners(pb.ListOwnersRequest(limit=3, cursor=first.next_cursor))
    assert [owner.id for owner in (*first.owners, *rest.owners)] == made
    assert rest.next_cursor == ""


async def test_unsound_names_are_refused(world: World) -> None:
    for name in ("", "x" * 101, "a\x00b", " padded", "line\nbreak"):
        await refused(InvalidInput, "invalid_field", world.registry.CreateOwner(pb.CreateOwnerRequest(name=name)))


async def test_sharing_is_one_of_three_words(world: World) -> None:
    owner = await world.owner("Ada")
    changed = await world.registry.UpdateOwner(pb.UpdateOwnerRequest(owner_id=owner, sharing="owners"))
    assert changed.sharing == "owners"
    assert (await world.registry.GetOwner(pb.GetOwnerRequest(owner_id=owner))).sharing == "owners"
    call = world.registry.UpdateOwner(pb.UpdateOwnerRequest(owner_id=owner, sharing="everyone"))
    await refused(InvalidInput, "invalid_field", call)


async def test_unknown_owners_are_not_found(world: World) -> None:
    for owner_id in ("", "own_nobody", "own_" + "0" * 26, "own_\x00", "dev_" + "0" * 26):
        await refused(NotFound, "unknown_owner", world.registry.GetOwner(pb.GetOwnerRequest(owner_id=owner_id)))
        await refused(NotFound, "unknown_owner", world.registry.IssueToken(pb.IssueTokenRequest(owner_id=owner_id)))
        call = world.registry.UpdateOwner(pb.UpdateOwnerRequest(owner_id=owner_id, sharing="all"))
        await refused(NotFound, "unknown_owner", call)


async def test_a_device_registers_and_its_key_authenticates(world: World) -> None:
    owner = await world.owner("Ada")
    pair = Keypair()
    profile = pair.profile("cam-1")
    profile.location.x_metres = 3.5
    profile.capabilities.seconds_per_sample = 0.01
    profile.capabilities.link_class = "wifi"
    request = pb.RegisterDeviceRequest(token=await world.token(owner), device=profile, proof=pair.proof())
    reply = await world.registry.RegisterDevice(request)
    device = reply.device
    assert (device.owner_id, device.state, device.key_version) == (owner, words.DEVICE_STATE_ACTIVE, 1)
    assert device.location.x_metres == 3.5
    assert device.capabilities.link_class == "wifi"
    assert await world.registry.GetDevice(pb.GetDeviceRequest(device_id=device.id)) == device
    principal = await world.registry.Authenticate(pb.AuthenticateRequest(api_key=reply.api_key))
    assert (principal.role, principal.subject, principal.owner_id) == (words.PRINCIPAL_ROLE_DEVICE, device.id, owner)


async def test_registering_again_returns_same_device_and_replaces_its_api_key(world: World) -> None:
    token, pair = await world.token(await world.owner("Ada"), uses=1), Keypair()
    first = await world.register(token, "cam", pair)
    again = await world.register(token, "cam", pair)
    assert again.device == first.device
    assert again.api_key != first.api_key
    await world.registry.Authenticate(pb.AuthenticateRequest(api_key=again.api_key))
    call = world.registry.Authenticate(pb.AuthenticateRequest(api_key=first.api_key))
    await refused(Unauthenticated, "invalid_api_key", call)


async def test_a_token_has_as_many_uses_as_issued_and_an_end(world: World) -> None:
    owner = await world.owner("Ada")
    token = await world.token(owner, uses=2)
    await world.register(token, "one")
    await world.register(token, "two")
    await refused(Exhausted, "token_spent", world.register(token, "three"))
    late = await world.registry.IssueToken(pb.IssueTokenRequest(owner_id=owner, lifetime_seconds=60))
    world.clock.time += 60
    await refused(Unauthenticated, "invalid_token", world.register(late.token, "late"))
    forged = late.token[:-4] + "AAAA"
    await refused(Unauthenticated, "invalid_token", world.register(forged, "forged"))
    await refused(Unauthenticated, "invalid_token", world.register("no token", "nothing"))
    listed = await world.registry.ListDevices(pb.ListDevicesRequest(owner_id=owner))
    assert [device.name for device in listed.devices] == ["one", "two"]


async def test_a_token_is_never_overspent_by_devices_that_come_together(world: World) -> None:
    token = await world.token(await world.owner("Ada"), uses=2)
    tried = await asyncio.gather(*(world.register(token, f"cam {k}") for k in range(6)), return_exceptions=True)
    assert sum(isinstance(item, pb.RegisterDeviceReply) for item in tried) == 2
    assert {item.reason for item in tried if isinstance(item, CoterieError)} == {"token_spent"}


async def test_registration_needs_proof_of_the_signing_key(world: World) -> None:
    token = await world.token(await world.owner("Ada"))
    honest, thief = Keypair(), Keypair()
    stolen = pb.RegisterDeviceRequest(token=token, device=honest.profile("cam"), proof=thief.proof())
    await refused(InvalidInput, "invalid_proof", world.registry.RegisterDevice(stolen))
    short = pb.RegisterDeviceRequest(token=token, device=pb.Device(name="cam", signing_key=b"x"), proof=b"")
    await refused(InvalidInput, "invalid_field", world.registry.RegisterDevice(short))
    zero = pb.Device(name="cam", signing_key=bytes(32), sealing_key=bytes(32))
    await refused(
        InvalidInput,
        "invalid_field",
        world.registry.RegisterDevice(pb.RegisterDeviceRequest(token=token, device=zero, proof=bytes(64))),
    )


async def test_names_and_signing_keys_belong_to_one_device(world: World) -> None:
    token, pair = await world.token(await world.owner("Ada")), Keypair()
    await world.register(token, "cam", pair)
    await refused(AlreadyExists, "name_taken", world.register(token, "cam"))
    other = await world.token(await world.owner("Bob"))
    await refused(AlreadyExists, "signing_key_taken", world.register(other, "mine", pair))
    changed = Keypair(signing=pair.signing)
    await refused(Conflict, "keys_changed", world.register(token, "cam", changed))


async def test_profiles_hold_sound_figures_only(world: World) -> None:
    (device,) = await world.devices(1)
    before = await world.registry.GetDevice(pb.GetDeviceRequest(device_id=device))
    changes: list[dict[str, Any]] = [
        {"capabilities": pb.Capabilities(seconds_per_sample=math.nan)},
        {"capabilities": pb.Capabilities(seconds_per_megabyte=-1)},
        {"capabilities": pb.Capabilities(link_class="string and tins")},
        {"capabilities": pb.Capabilities(memory_bytes=-1)},
        {"location": pb.Location(x_metres=math.inf)},
    ]
    for change in changes:
        call = world.registry.UpdateDevice(pb.UpdateDeviceRequest(device_id=device, **change))
        await refused(InvalidInput, "invalid_field", call)
    assert await world.registry.GetDevice(pb.GetDeviceRequest(device_id=device)) == before


async def test_fields_not_set_stay_as_they_are(world: World) -> None:
    (device,) = await world.devices(1)
    await world.registry.UpdateDevice(
        pb.UpdateDeviceRequest(
            device_id=device,
            location=pb.Location(x_metres=1, y_metres=2),
            capabilities=pb.Capabilities(seconds_per_sample=0.5, link_class="lora"),
        )
    )
    changed = await world.registry.UpdateDevice(
        pb.UpdateDeviceRequest(device_id=device, capabilities=pb.Capabilities(memory_bytes=1 << 40))
    )
    assert (changed.location.x_metres, changed.location.y_metres) == (1, 2)
    able = changed.capabilities
    assert (able.seconds_per_sample, able.link_class, able.memory_bytes) == (0.5, "lora", 1 << 40)


async def test_keys_rotate_on_the_word_of_the_old_key(world: World) -> None:
    old, new = Keypair(), Keypair()
    device = (await world.register(await world.token(await world.owner("Ada")), "cam", old)).device
    signing, sealing = new.public
    unsigned = pb.RotateKeysRequest(device_id=device.id, signing_key=signing, sealing_key=sealing, proof=new.proof())
    await refused(InvalidInput, "invalid_proof", world.registry.RotateKeys(unsigned))
    proof = old.signing.sign(signing + sealing).signature
    request = pb.RotateKeysRequest(device_id=device.id, signing_key=signing, sealing_key=sealing, proof=proof)
    rotated = await world.registry.RotateKeys(request)
    assert (rotated.signing_key, rotated.sealing_key, rotated.key_version) == (signing, sealing, 2)
    assert await world.registry.RotateKeys(request) == rotated  # a repeat after a lost answer changes nothing


async def test_revocation_stops_a_device_at_once(world: World) -> None:
    token, pair = await world.token(await world.owner("Ada")), Keypair()
    reply = await world.register(token, "cam", pair)
    revoked = await world.registry.RevokeDevice(pb.RevokeDeviceRequest(device_id=reply.device.id, why="stolen"))
    assert revoked.state == words.DEVICE_STATE_REVOKED
    call = world.registry.Authenticate(pb.AuthenticateRequest(api_key=reply.api_key))
    await refused(Unauthenticated, "invalid_api_key", call)
    await refused(Conflict, "device_revoked", world.register(token, "cam", pair))
    update = pb.UpdateDeviceRequest(device_id=reply.device.id, location=pb.Location(x_metres=1))
    await refused(Conflict, "device_revoked", world.registry.UpdateDevice(update))
    active = await world.registry.ListDevices(pb.ListDevicesRequest(state=words.DEVICE_STATE_ACTIVE))
    assert list(active.devices) == []
    audit = await world.registry.ListAudit(pb.ListAuditRequest(act="device.revoke"))
    assert [(entry.object, entry.note, entry.subject) for entry in audit.entries] == [
        (reply.device.id, "stolen", "platform")
    ]


async def test_several_devices_come_in_order_asked_and_unknown_ones_are_named(world: World) -> None:
    made = await world.devices(3)
    asked = [made[2], made[0], made[2]]
    reply = await world.registry.GetDevices(pb.GetDevicesRequest(device_ids=asked))
    assert [device.id for device in reply.devices] == asked
    call = world.registry.GetDevices(pb.GetDevicesRequest(device_ids=[made[0], "dev_missing", "dev_\x00"]))
    error = await refused(NotFound, "unknown_device", call)
    assert "dev_missing" in error.message
    many = pb.GetDevicesRequest(device_ids=["dev_x"] * 10_001)
    await refused(TooLarge, "too_many", world.registry.GetDevices(many))


async def test_heartbeats_are_seen_at_once_and_kept_over_a_restart(world: World) -> None:
    (device,) = await world.devices(1)
    world.clock.time += 7
    await world.registry.Heartbeat(pb.HeartbeatRequest(device_ids=[device, "dev_" + "0" * 26, "\x00"]))
    seen = await world.registry.GetDevice(pb.GetDeviceRequest(device_id=device))
    assert seen.last_seen_at == START + 7
    await world.app.stop()
    restarted, channel = await open_world(world.settings, world.clock)
    seen = await restarted.registry.GetDevice(pb.GetDeviceRequest(device_id=device))
    assert seen.last_seen_at == START + 7
    await channel.close()
    await restarted.app.stop()


async def test_publisher_keys_work_until_revoked_and_keep_their_subject(world: World) -> None:
    request = pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_PUBLISHER, name="lab")
    first = await world.registry.CreateKey(request)
    assert first.principal.subject.startswith("pub_")
    await refused(AlreadyExists, "name_taken", world.registry.CreateKey(request))
    held = await world.registry.Authenticate(pb.AuthenticateRequest(api_key=first.api_key))
    assert held == first.principal
    await world.registry.RevokeKey(pb.RevokeKeyRequest(key_id=first.id))
    call = world.registry.Authenticate(pb.AuthenticateRequest(api_key=first.api_key))
    await refused(Unauthenticated, "invalid_api_key", call)
    second = await world.registry.CreateKey(request)
    assert second.principal.subject == first.principal.subject
    root = pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_DEVICE, name="me")
    await refused(InvalidInput, "invalid_field", world.registry.CreateKey(root))
    await refused(NotFound, "unknown_key", world.registry.RevokeKey(pb.RevokeKeyRequest(key_id="key_\x00")))


async def test_a_key_is_replaced_without_a_gap_and_ends_after_its_grace(world: World) -> None:
    first = await world.registry.CreateKey(pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_PUBLISHER, name="lab"))
    speak_as("publisher", "pub_other")
    theirs = pb.RotateKeyRequest(key_id=first.id, grace_seconds=60)
    await refused(NotFound, "unknown_key", world.registry.RotateKey(theirs))
    speak_as("publisher", first.principal.subject)
    second = await world.registry.RotateKey(theirs)
    assert second.principal.subject == first.principal.subject
    world.clock.time += 59
    for key in (first, second):
        held = await world.registry.Authenticate(pb.AuthenticateRequest(api_key=key.api_key))
        assert held.subject == first.principal.subject
    world.clock.time += 1
    await refused(
        Unauthenticated, "invalid_api_key", world.registry.Authenticate(pb.AuthenticateRequest(api_key=first.api_key))
    )
    await world.registry.Authenticate(pb.AuthenticateRequest(api_key=second.api_key))
    await refused(NotFound, "unknown_key", world.registry.RotateKey(theirs))
    await refused(PermissionDenied, "not_allowed", world.registry.ListKeys(pb.ListKeysRequest()))


async def test_a_key_may_end_and_the_list_says_when(world: World) -> None:
    past = pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_PUBLISHER, name="trial", expires_at=START - 1)
    await refused(InvalidInput, "past_end", world.registry.CreateKey(past))
    trial = pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_PUBLISHER, name="trial", expires_at=START + 60)
    made = await world.registry.CreateKey(trial)
    await world.registry.Authenticate(pb.AuthenticateRequest(api_key=made.api_key))
    listed = {key.id: key for key in (await world.registry.ListKeys(pb.ListKeysRequest())).keys}
    assert (listed[made.id].expires_at, listed[made.id].revoked_at) == (START + 60, 0.0)
    assert {key.principal.role for key in listed.values()} == {
        words.PRINCIPAL_ROLE_PUBLISHER,
        words.PRINCIPAL_ROLE_ADMIN,
    }
    world.clock.time += 60
    await refused(
        Unauthenticated, "invalid_api_key", world.registry.Authenticate(pb.AuthenticateRequest(api_key=made.api_key))
    )
    again = pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_PUBLISHER, name="trial")
    assert (await world.registry.CreateKey(again)).principal.subject == made.principal.subject


async def test_the_last_admin_key_that_goes_on_is_not_revoked(world: World) -> None:
    """One that was rotated away does not count once it has ended."""
    text = (world.settings.data_dir / "admin.key").read_text().strip()
    old = await world.registry.Authenticate(pb.AuthenticateRequest(api_key=text))
    new = await world.registry.RotateKey(pb.RotateKeyRequest(key_id=old.key_id, grace_seconds=0))
    await refused(Conflict, "last_admin_key", world.registry.RevokeKey(pb.RevokeKeyRequest(key_id=new.id)))


async def test_unknown_keys_are_refused(world: World) -> None:
    for text in ("", "ck_", "x" * 5000, "ck_" + "0" * 26 + "." + "a" * 43, "ck_\x00.\x00"):
        call = world.registry.Authenticate(pb.AuthenticateRequest(api_key=text))
        await refused(Unauthenticated, "invalid_api_key", call)


async def test_first_admin_key_is_written_for_its_user_alone_and_never_logged(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    path = world.settings.data_dir / "admin.key"
    text = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    holder = await world.registry.Authenticate(pb.AuthenticateRequest(api_key=text))
    assert holder.role == words.PRINCIPAL_ROLE_ADMIN
    assert text not in capfd.readouterr().err
    last = pb.RevokeKeyRequest(key_id=holder.key_id)
    await refused(Conflict, "last_admin_key", world.registry.RevokeKey(last))
    await world.registry.CreateKey(pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_ADMIN, name="second"))
    await world.registry.RevokeKey(last)


async def test_a_restart_keeps_the_admin_key(world: World) -> None:
    path = world.settings.data_dir / "admin.key"
    before = path.read_text()
    path.unlink()
    await world.app.stop()
    restarted, channel = await open_world(world.settings, world.clock)
    assert not path.exists()
    await restarted.registry.Authenticate(pb.AuthenticateRequest(api_key=before.strip()))
    await channel.close()
    await restarted.app.stop()


async def test_an_admin_key_file_named_in_the_settings_is_adopted(world: World) -> None:
    await world.app.stop()
    path, secret = world.settings.data_dir / "given.key", new_credential("ck")
    path.write_text(secret.text + "\n")
    named = world.settings.model_copy(update={"admin_key_file": path})
    restarted, channel = await open_world(named, world.clock)
    holder = await restarted.registry.Authenticate(pb.AuthenticateRequest(api_key=secret.text))
    assert (holder.role, holder.key_id) == (words.PRINCIPAL_ROLE_ADMIN, secret.id)
    await channel.close()
    await restarted.app.stop()


async def test_an_admin_key_file_without_a_key_stops_the_start(settings: ServiceSettings) -> None:
    path = settings.data_dir / "given.key"
    own = TrustSettings(
        data_dir=settings.data_dir, database_url=settings.database_url, admin_key_file=path, insecure=True
    )
    for text in (None, "hunter2"):
        if text is not None:
            path.write_text(text)
        app = App(own, "127.0.0.1:0", Hand())
        with pytest.raises(InvalidInput, match="admin key"):
            await app.start()
        await app.stop()


async def test_a_device_reaches_only_what_is_its_own(world: World) -> None:
    token = await world.token(await world.owner("Ada"))
    own = (await world.register(token, "mine")).device
    (other,) = await world.devices(1, owner="Bob")
    speak_as("device", own.id, own.owner_id)
    denied = [
        world.registry.CreateOwner(pb.CreateOwnerRequest(name="Eve")),
        world.registry.GetOwner(pb.GetOwnerRequest(owner_id="own_" + "0" * 26)),
        world.registry.ListOwners(pb.ListOwnersRequest()),
        world.registry.UpdateOwner(pb.UpdateOwnerRequest(owner_id=own.owner_id, sharing="all")),
        world.registry.IssueToken(pb.IssueTokenRequest(owner_id=own.owner_id)),
        world.registry.GetDevice(pb.GetDeviceRequest(device_id=other)),
        world.registry.ListDevices(pb.ListDevicesRequest(owner_id="own_" + "0" * 26)),
        world.registry.UpdateDevice(pb.UpdateDeviceRequest(device_id=other)),
        world.registry.RotateKeys(pb.RotateKeysRequest(device_id=other)),
        world.registry.RevokeDevice(pb.RevokeDeviceRequest(device_id=other)),
        world.registry.Heartbeat(pb.HeartbeatRequest(device_ids=[other])),
        world.registry.CreateKey(pb.CreateKeyRequest(role=words.PRINCIPAL_ROLE_ADMIN, name="me")),
        world.registry.RevokeKey(pb.RevokeKeyRequest(key_id="key_" + "0" * 26)),
        world.registry.ListAudit(pb.ListAuditRequest()),
    ]
    for call in denied:
        await refused(PermissionDenied, "not_allowed", call)
    listed = await world.registry.ListDevices(pb.ListDevicesRequest())
    assert [device.id for device in listed.devices] == [own.id]
    assert (await world.registry.GetOwner(pb.GetOwnerRequest(owner_id=own.owner_id))).name == "Ada"


async def test_the_audit_log_pages_newest_first_and_names_the_caller(world: World) -> None:
    speak_as("admin", "adm_someone")
    owners = [await world.owner(name) for name in ("Ada", "Bob", "Cem")]
    first = await world.registry.ListAudit(pb.ListAuditRequest(act="owner.create", limit=2))
    rest = await world.registry.ListAudit(
        pb.ListAuditRequest(act="owner.create", limit=2, cursor=first.next_cursor, subject="adm_someone")
    )
    entries = [*first.entries, *rest.entries]
    assert [entry.object for entry in entries] == owners[::-1]
    assert {entry.note for entry in entries} == {""}  # names go with who bears them
    assert {(entry.role, entry.subject) for entry in first.entries} == {(words.PRINCIPAL_ROLE_ADMIN, "adm_someone")}
    assert all(entry.request_id for entry in first.entries)


async def test_a_refused_act_leaves_no_audit_entry(world: World) -> None:
    token = await world.token(await world.owner("Ada"), uses=1)
    await world.register(token, "one")
    before = await world.registry.ListAudit(pb.ListAuditRequest())
    await refused(Exhausted, "token_spent", world.register(token, "two"))
    assert await world.registry.ListAudit(pb.ListAuditRequest()) == before


async def test_cursors_of_other_lists_are_refused(world: World) -> None:
    for cursor in ("dev_\x00", "zzz", "own_" + "0" * 26):
        await refused(InvalidInput, "bad_cursor", world.registry.ListDevices(pb.ListDevicesRequest(cursor=cursor)))
    await refused(InvalidInput, "bad_page", world.registry.ListDevices(pb.ListDevicesRequest(limit=501)))
