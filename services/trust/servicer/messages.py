"""gRPC messages to and from the registry's records."""

from __future__ import annotations

from coterie.records.enums import PrincipalRole
from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.rpc.enums import known_number, number
from services.trust.domain.records import (
    ApiKey,
    AuditEntry,
    Capabilities,
    Device,
    Location,
    Owner,
    Profile,
    PublicKeys,
)


def owner(value: Owner) -> pb.Owner:
    return pb.Owner(
        id=value.id, name=value.name, created_at=value.created_at, sharing=value.sharing, public=value.public
    )


def device(value: Device) -> pb.Device:
    profile = value.profile
    place, able = profile.location, profile.capabilities
    return pb.Device(
        id=value.id,
        owner_id=value.owner_id,
        name=profile.name,
        kind=profile.kind,
        brand=profile.brand,
        model=profile.model,
        location=None if place is None else pb.Location(x_metres=place.x_metres, y_metres=place.y_metres),
        signing_key=value.keys.signing,
        sealing_key=value.keys.sealing,
        capabilities=pb.Capabilities(
            seconds_per_sample=able.seconds_per_sample,
            link_class=able.link_class,
            seconds_per_megabyte=able.seconds_per_megabyte,
            memory_bytes=able.memory_bytes,
        ),
        state=number(value.state),
        registered_at=value.registered_at,
        last_seen_at=value.last_seen_at,
        key_version=value.key_version,
    )


def read_profile(message: pb.Device) -> Profile:
    return Profile(
        name=message.name,
        kind=message.kind,
        brand=message.brand,
        model=message.model,
        location=read_location(message.location) if message.HasField("location") else None,
        capabilities=read_capabilities(message.capabilities),
    )


def read_location(message: pb.Location) -> Location:
    return Location(message.x_metres, message.y_metres)


def read_capabilities(message: pb.Capabilities) -> Capabilities:
    return Capabilities(
        message.seconds_per_sample, message.link_class, message.seconds_per_megabyte, message.memory_bytes
    )


def read_keys(message: pb.Device | pb.RotateKeysRequest) -> PublicKeys:
    return PublicKeys(message.signing_key, message.sealing_key)


def principal(value: ApiKey) -> pb.Principal:
    return pb.Principal(
        role=number(PrincipalRole(value.role)),
        subject=value.subject,
        name=value.name,
        owner_id=value.owner_id,
        key_id=value.id,
        link_id=value.link_id,
    )


def key_info(value: ApiKey) -> pb.KeyInfo:
    return pb.KeyInfo(
        id=value.id,
        principal=principal(value),
        created_at=value.created_at,
        expires_at=value.expires_at or 0.0,
        revoked_at=value.revoked_at or 0.0,
    )


def audit_entry(value: AuditEntry) -> pb.AuditEntry:
    return pb.AuditEntry(
        number=value.number,
        at=value.at,
        role=known_number(PrincipalRole(value.role)),
        subject=value.subject,
        act=value.act,
        object=value.object,
        request_id=value.request_id,
        note=value.note,
    )
