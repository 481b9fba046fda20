"""Accounts: balances, statements, deposits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Literal

from fastapi import Query
from google.protobuf.message import Message
from starlette.responses import Response

from coterie.records import Account, Page, Posting, Statement
from coterie_api.pricing.v1 import pricing_pb2
from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.ownership import require_own_account
from services.gateway.errors import UnknownPublisher
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import AnyId, Cursor, IdFilter, Limit, Moment
from services.gateway.schemas.money import NewDeposit
from services.gateway.wire.convert import page, to_json, to_proto
from services.gateway.wire.openapi import CSV_RESPONSE
from services.gateway.wire.responses import JsonResponse, message_response
from services.gateway.wire.spreadsheets import PAGE_ITEMS, csv_response

router = router_for("accounts")


@router.get("/v1/accounts", response_model=Page[Account], summary="List accounts")
async def list_accounts(
    platform: Platform, prefix: IdFilter = "", limit: Limit = 100, cursor: Cursor = ""
) -> JsonResponse:
    """In order of id; `prefix` such as `device:` narrows them."""
    request = pricing_pb2.ListAccountsRequest(prefix=prefix, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.ledger.ListAccounts(request), "accounts"))


@router.get("/v1/accounts/{account_id}", response_model=Account, summary="One account")
async def get_account(account_id: AnyId, platform: Platform) -> JsonResponse:
    """A device sees `device:<its id>` and its owner's; a publisher its own and its tasks' escrows."""
    await require_own_account(platform, account_id)
    return message_response(await platform.ledger.GetAccount(pricing_pb2.GetAccountRequest(account_id=account_id)))


@router.get(
    "/v1/accounts/{account_id}/statement",
    response_model=Statement,
    summary="An account's statement",
    responses=CSV_RESPONSE,
)
async def get_statement(
    account_id: AnyId,
    platform: Platform,
    since: Moment = 0,
    until: Moment = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Cursor = "",
    format: Literal["json", "csv"] = "json",
) -> Response:
    """Postings over a period, oldest first, with opening and closing balance; CSV streams all of them."""
    await require_own_account(platform, account_id)
    request = pricing_pb2.GetStatementRequest(
        account_id=account_id, since=since, until=until, limit=limit, cursor=cursor
    )
    if format == "json":
        document = to_json(await platform.ledger.GetStatement(request))
        document["items"] = document.pop("postings")
        return JsonResponse(document)

    async def fetch(after: str) -> tuple[Iterable[Message], str]:
        request.limit, request.cursor = PAGE_ITEMS, after
        reply = await platform.ledger.GetStatement(request)
        return reply.postings, reply.next_cursor

    return await csv_response([field.name for field in fields(Posting)], fetch, "statement")


@router.post("/v1/accounts/{publisher}/deposits", status_code=201, response_model=Account, summary="Deposit credits")
async def deposit(publisher: AnyId, body: NewDeposit, platform: Platform) -> JsonResponse:
    """`publisher` is the publisher's subject, `pub_…`, which must have or have had a key. Repeating the same key
    changes nothing."""
    subject = publisher.removeprefix("publisher:")
    holder = await platform.registry.ListKeys(trust_pb2.ListKeysRequest(subject=subject, limit=1))
    if not holder.keys:
        raise UnknownPublisher(
            f"no publisher {subject}; `coterie keys list` lists publishers, `coterie keys create` makes one"
        )
    request = to_proto(pricing_pb2.DepositRequest, body, publisher=subject)
    return message_response(await platform.ledger.Deposit(request), 201)
