"""The audit log."""

from __future__ import annotations

from coterie.records import AuditEntry, Page
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Platform, routes_for
from services.gateway.schemas.base import Cursor, IdFilter, Limit, WordFilter
from services.gateway.wire.answers import Json
from services.gateway.wire.convert import page

routes = routes_for("audit")


@routes.get("/v1/audit", response_model=Page[AuditEntry], summary="Read the audit log")
async def list_audit(
    platform: Platform, subject: IdFilter = "", act: WordFilter = "", limit: Limit = 100, cursor: Cursor = ""
) -> Json:
    """Who did what to what, newest first."""
    request = trust_pb2.ListAuditRequest(subject=subject, act=act, limit=limit, cursor=cursor)
    return Json(page(await platform.registry.ListAudit(request), "entries"))
