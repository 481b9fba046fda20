"""The audit log."""

from __future__ import annotations

from coterie.records import AuditEntry, AuditVerification, Page
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import Cursor, IdFilter, Limit, WordFilter
from services.gateway.wire.convert import page
from services.gateway.wire.responses import JsonResponse, message_response

VERIFY_SECONDS = 300.0
router = router_for("audit")


@router.get("/v1/audit", response_model=Page[AuditEntry], summary="Read the audit log")
async def list_audit(
    platform: Platform, subject: IdFilter = "", act: WordFilter = "", limit: Limit = 100, cursor: Cursor = ""
) -> JsonResponse:
    """Actor, act and subject of each entry, newest first."""
    request = trust_pb2.ListAuditRequest(subject=subject, act=act, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.registry.ListAudit(request), "entries"))


@router.post("/v1/audit/verification", response_model=AuditVerification, summary="Check the audit log")
async def verify_audit(platform: Platform) -> JsonResponse:
    """Checks its hash chain from the first entry to the last."""
    return message_response(await platform.registry.VerifyAudit(trust_pb2.VerifyAuditRequest(), timeout=VERIFY_SECONDS))
