"""Models: safetensors files under their SHA-256."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from coterie.records import RegisteredModel
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.routes.base import Gateway, router_for
from services.gateway.schemas.base import DIGEST_PATTERN
from services.gateway.wire.bodies import MEDIA_TYPE, check_size, download, pieces_of, promised_digest, promised_size
from services.gateway.wire.openapi import BLOB_RESPONSES, DIGEST_PARAMETER
from services.gateway.wire.responses import JsonResponse, message_response

REGISTER_SECONDS = 60.0
_BODY: dict[str, Any] = {
    "parameters": [DIGEST_PARAMETER | {"required": False}],
    "requestBody": {
        "description": "A safetensors file.",
        "required": True,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    },
}
router = router_for("models")


@router.post(
    "/v1/models", status_code=201, response_model=RegisteredModel, summary="Upload a model", openapi_extra=_BODY
)
async def upload_model(request: Request, gateway: Gateway) -> JsonResponse:
    """The body streams and must be a valid safetensors file. Safe to repeat."""
    digest, limit = promised_digest(request, required=False), gateway.settings.max_model_bytes
    size = promised_size(request)
    check_size(size, limit)
    admission = await gateway.platform.tasks.AdmitModel(aggregation_pb2.AdmitModelRequest(size_bytes=size or 0))
    limit = min(limit, admission.max_bytes)
    stored_digest, _ = await gateway.blobs.put(pieces_of(request), max_bytes=limit, digest=digest)
    registration = aggregation_pb2.RegisterModelRequest(digest=stored_digest)
    return message_response(await gateway.platform.tasks.RegisterModel(registration, timeout=REGISTER_SECONDS), 201)


@router.delete("/v1/models/{digest}", status_code=204, response_class=Response, summary="Delete an uploaded model")
async def forget_model(
    digest: Annotated[str, Path(pattern=DIGEST_PATTERN, description="SHA-256 of the model.", examples=["0a" * 32])],
    gateway: Gateway,
) -> Response:
    """Frees the uploader's quota. Tasks that started with this model keep it."""
    await gateway.platform.tasks.ForgetModel(aggregation_pb2.ForgetModelRequest(digest=digest))
    return Response(status_code=204)


@router.get("/v1/models/{digest}", response_class=Response, summary="Download a model", responses=BLOB_RESPONSES)
async def download_model(
    request: Request,
    digest: Annotated[str, Path(pattern=DIGEST_PATTERN, description="SHA-256 of the model.", examples=["0a" * 32])],
    gateway: Gateway,
) -> Response:
    """Streamed; the ETag is the digest. Supports `If-None-Match` (304) and a single `Range` (206)."""
    blob = await gateway.platform.tasks.AuthoriseDownload(aggregation_pb2.AuthoriseDownloadRequest(digest=digest))
    return await download(request, gateway.blobs, blob.digest, blob.size_bytes)
