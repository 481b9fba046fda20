"""Privacy that devices have spent."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from coterie.records import PrivacyReport
from coterie_api.pricing.v1 import pricing_pb2
from services.gateway.access.ownership import require_own_device
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import DeviceId
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("privacy")


@router.get("/v1/privacy/{device_id}", response_model=PrivacyReport, summary="Privacy a device has spent")
async def get_privacy(
    device_id: DeviceId,
    platform: Platform,
    delta: Annotated[float, Query(ge=0, lt=1, description="δ of the composed guarantee; 0 means 1e-6.")] = 0,
) -> JsonResponse:
    """By task, and composed over all its tasks; ε is "inf" where no noise was added."""
    require_own_device(device_id)
    request = pricing_pb2.GetPrivacyRequest(device_id=device_id, delta=delta)
    return message_response(await platform.ledger.GetPrivacy(request))
