"""The audit log."""

from __future__ import annotations

from coterie.records import AuditEntry, AuditVerification, Page
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Platform, routes_for
from services.gateway.schemas.base import Cursor, IdFilter, Limit, WordFilter
from services.gateway.wire.answers import Json, answer
from services.gateway.wire.convert import page

VERIFY_SECONDS = 300.0
routes = routes_for("audit")


@routes.get("/v1/audit", response_model=Page[AuditEntry], summary="Read the audit log")
async def list_audit(
    platform: Platform, subject: IdFilter = "", act: WordFilter = "", limit: Limit = 100, cursor: Cursor = ""
) -> Json:
    """Who did what to what, newest first."""
    request = trust_pb2.ListAuditRequest(subject=subject, act=act, limit=limit, cursor=cursor)
    return Json(page(await platform.registry.ListAudit(request), "entries"))


@routes.post("/v1/audit/verification", response_model=AuditVerification, summary="Check the audit log")
async def verify_audit(platform: Platform) -> Json:
    """Follows its chain of hashes from the first entry to the last."""
    return answer(await platform.registry.VerifyAudit(trust_pb2.VerifyAuditRequest(), timeout=VERIFY_SECONDS))
