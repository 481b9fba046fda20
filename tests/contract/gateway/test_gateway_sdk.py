"""The SDK before the gateway: a method for every route, and every answer read as the record the document names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import pytest
from fastapi.routing import APIRoute

from coterie import records
from coterie.agent.cache import BlobCache
from coterie.client import Platform
from coterie.secure_sums.terms import Place
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.access.table import ACCESS
from services.gateway.app import build
from services.gateway.settings import GatewaySettings
from services.gateway.wire.plain_routes import declared
from tests.contract.gateway.fakes import FakePlatform

ADMIN, PUBLISHER, DEVICE = "admin", "publisher", "device"
Call = tuple[str, Callable[[Platform], Any]]
KEY = bytes(32)
PLACE = Place("tsk_1", cohort=0, round=1, session_number=1)
BODY = {
    "token": "ct",
    "name": "x",
    "signing_key": "A" * 43 + "=",
    "sealing_key": "A" * 43 + "=",
    "proof": "A" * 86 + "==",
}
MET = {"id": "m", "device_a": "dev_1", "device_b": "dev_2", "positive": True, "at": 1.0}
CELL: dict[str, Any] = {"x_metres": 0, "y_metres": 0, "blocks": 1, "power_watts": 1, "bandwidth_hertz": 1}
CELL |= {"delay_limit_seconds": 1, "radius_metres": 1}
CALLS: dict[str, Call] = {
    "report_measurement": (DEVICE, lambda p: p.report_measurement("tsk_1", 1, {"loss": 0.5})),
    "list_measurements": (PUBLISHER, lambda p: p.measurements("tsk_1", 1)),
    "ready": (ADMIN, lambda p: p.health()),
    "versions": (ADMIN, lambda p: p.versions()),
    "register_device": (ADMIN, lambda p: p.register_device(BODY)),
    "get_me": (DEVICE, lambda p: p.me()),
    "create_owner": (ADMIN, lambda p: p.create_owner("Ada")),
    "list_owners": (ADMIN, lambda p: p.owners()),
    "get_owner": (ADMIN, lambda p: p.owner("own_1")),
    "update_owner": (ADMIN, lambda p: p.update_owner("own_1", sharing="all")),
    "issue_token": (ADMIN, lambda p: p.issue_token("own_1")),
    "list_devices": (ADMIN, lambda p: p.devices()),
    "get_device": (DEVICE, lambda p: p.device("dev_1")),
    "get_keys": (DEVICE, lambda p: p.keys_of("dev_2")),
    "update_device": (DEVICE, lambda p: p.update_device("dev_1", location={"x_metres": 1, "y_metres": 2})),
    "heartbeat": (DEVICE, lambda p: p.heartbeat("dev_1")),
    "rotate_keys": (DEVICE, lambda p: p.rotate_keys("dev_1", signing_key=KEY, sealing_key=KEY, proof=KEY + KEY)),
    "revoke_device": (ADMIN, lambda p: p.revoke_device("dev_1", "lost")),
    "erase_device": (ADMIN, lambda p: p.erase_device("dev_1")),
    "make_link": (DEVICE, lambda p: p.make_link("dev_1", token_digest=KEY)),
    "claim_link": (DEVICE, lambda p: p.claim_link("lnk_1", token=KEY, browser_key=KEY, proof=KEY, name="Firefox")),
    "begin_session": (DEVICE, lambda p: p.begin_session("lnk_1", at_milliseconds=1, signature=KEY + KEY)),
    "list_links": (DEVICE, lambda p: p.links("dev_1")),
    "end_link": (DEVICE, lambda p: p.end_link("dev_1", "lnk_1")),
    "put_note": (DEVICE, lambda p: p.put_note("dev_1", "lnk_1", b"sealed")),
    "decide": ("browser", lambda p: p.decide("dev_1", text="{}", signature=KEY + KEY)),
    "list_decisions": (DEVICE, lambda p: p.decisions("dev_1", waiting=True)),
    "answer_decision": (DEVICE, lambda p: p.answer_decision("dev_1", "dcn_1", records.DecisionState.DONE)),
    "create_key": (ADMIN, lambda p: p.create_key("publisher", "hospital")),
    "list_keys": (ADMIN, lambda p: p.keys()),
    "rotate_key": (PUBLISHER, lambda p: p.rotate_key("key_1")),
    "revoke_key": (ADMIN, lambda p: p.revoke_key("key_1")),
    "list_audit": (ADMIN, lambda p: p.audit(act="trust.read")),
    "verify_audit": (ADMIN, lambda p: p.verify_audit()),
    "record_interactions": (DEVICE, lambda p: p.record_interactions([MET])),
    "list_interactions": (ADMIN, lambda p: p.interactions("dev_1")),
    "explain_trust": (ADMIN, lambda p: p.explain_trust("dev_1", "dev_2", at=5.0)),
    "get_history": (ADMIN, lambda p: p.trust_history("dev_1", "dev_2", points=3)),
    "list_peers": (ADMIN, lambda p: p.trust_peers("dev_1", limit=5)),
    "get_graph": (ADMIN, lambda p: p.trust_graph(least=0.5)),
    "list_losses": (ADMIN, lambda p: p.trust_losses(device="dev_1")),
    "list_relations": (ADMIN, lambda p: p.relations("dev_1")),
    "derive_relations": (ADMIN, lambda p: p.derive_relations(["social"])),
    "declare_friendship": (ADMIN, lambda p: p.declare_friendship("own_1", "own_2", 0.5)),
    "list_friendships": (ADMIN, lambda p: list(p.friendships("own_1"))),
    "import_rows": (ADMIN, lambda p: p.import_rows(b'{"name": "town", "owner_name": "Town"}')),
    "get_import": (ADMIN, lambda p: p.import_progress("a town, 2")),
    "create_task": (PUBLISHER, lambda p: p.create_task(name="digits", preset="fedavg")),
    "list_tasks": (ADMIN, lambda p: p.tasks(state="running")),
    "get_task": (ADMIN, lambda p: p.find_task("tsk_1")),
    "start_task": (PUBLISHER, lambda p: p.start_task("tsk_1")),
    "cancel_task": (PUBLISHER, lambda p: p.cancel_task("tsk_1", "why")),
    "get_plan": (PUBLISHER, lambda p: p.plan("tsk_1", 2)),
    "enrol": (DEVICE, lambda p: p.enrol("tsk_1", "dev_1", samples=3)),
    "withdraw": (DEVICE, lambda p: p.withdraw("tsk_1", "dev_1")),
    "list_enrolments": (ADMIN, lambda p: p.enrolments("tsk_1")),
    "list_rounds": (ADMIN, lambda p: p.rounds("tsk_1", after=2)),
    "get_round": (ADMIN, lambda p: p.round("tsk_1", 1)),
    "list_participations": (ADMIN, lambda p: p.participations("tsk_1", "dev_1")),
    "get_prices": (ADMIN, lambda p: p.prices("tsk_1", 1)),
    "list_events": (ADMIN, lambda p: p.events("tsk_1", after=3)),
    "list_models": (ADMIN, lambda p: p.models("tsk_1")),
    "replay_task": (ADMIN, lambda p: p.replay("tsk_1")),
    "ask_evaluation": (ADMIN, lambda p: p.evaluation("tsk_1")),
    "answer_evaluation": (ADMIN, lambda p: p.answer_evaluation("tsk_1", 1, "0a" * 32, [0.5])),
    "list_contributions": (ADMIN, lambda p: p.contributions("tsk_1")),
    "report_links": (DEVICE, lambda p: p.report_links("tsk_1", [("dev_1", "dev_2", 0.5)])),
    "upload_model": (PUBLISHER, lambda p: p.upload_model(b"model")),
    "forget_model": (PUBLISHER, lambda p: p.forget_model("0a" * 32)),
    "sweep_blobs": (ADMIN, lambda p: p.sweep_blobs(dry_run=False)),
    "prune_tasks": (ADMIN, lambda p: p.prune_tasks(dry_run=False)),
    "get_work": (DEVICE, lambda p: p.work(tasks=["tsk_1"])),
    "put_update": (DEVICE, lambda p: p.put_update("tsk_1", 1, "dev_1", report="{}", body=b"update")),
    "decline_work": (DEVICE, lambda p: p.decline("tsk_1", 1, "no")),
    "object_to_verdict": (DEVICE, lambda p: p.object("tsk_1", 1, "no")),
    "send_letter": (
        DEVICE,
        lambda p: p.send_letter("tsk_1", 1, "dev_2", b"sealed", kind="update", plan_version=1),
    ),
    "list_letters": (DEVICE, lambda p: p.letters("tsk_1", 1, known=["let_1"])),
    "get_privacy": (DEVICE, lambda p: p.privacy("dev_1", delta=1e-5)),
    "list_cells": (ADMIN, lambda p: p.cells()),
    "get_cell": (ADMIN, lambda p: p.cell("some_id")),
    "put_cell": (ADMIN, lambda p: p.put_cell("north", **CELL)),
    "remove_cell": (ADMIN, lambda p: p.remove_cell("north")),
    "list_policies": (ADMIN, lambda p: p.policies()),
    "train_policy": (ADMIN, lambda p: p.train_policy(users=3)),
    "list_accounts": (ADMIN, lambda p: p.accounts("device:")),
    "get_account": (DEVICE, lambda p: p.account("device:dev_1")),
    "get_statement": (DEVICE, lambda p: p.statement("device:dev_1", since=1.0)),
    "deposit": (ADMIN, lambda p: p.deposit("pub_1", 5, key="a")),
    "list_payments": (ADMIN, lambda p: p.payments(task="tsk_1")),
    "summarise_payments": (ADMIN, lambda p: p.payment_summary()),
    "verify_payments": (ADMIN, lambda p: p.verify_book()),
    "what_if": (ADMIN, lambda p: p.what_if("blocks", {"limit": 0.5})),
    "list_duties": (DEVICE, lambda p: p.duties()),
    "put_key_offer": (DEVICE, lambda p: p.put_key_offer(PLACE, "dev_1", session_key=KEY, signature=KEY + KEY)),
    "get_terms": (DEVICE, lambda p: p.sum_terms(PLACE)),
    "get_candidates": (DEVICE, lambda p: p.sum_candidates(PLACE)),
    "put_ready_check": (
        DEVICE,
        lambda p: p.put_ready_check(PLACE, "dev_1", candidates=KEY.hex(), ready=["a"], faults={"b": "root"}),
    ),
    "put_commit": (DEVICE, lambda p: p.put_commit(PLACE, "dev_1", digest=KEY, signature=KEY + KEY)),
    "get_commits": (DEVICE, lambda p: p.sum_commits(PLACE)),
    "put_answer": (
        DEVICE,
        lambda p: p.put_answer(PLACE, "dev_1", digest=KEY, digests={0: KEY}, signature=KEY + KEY),
    ),
}
ELSEWHERE = {"live": "for probes", "metrics": "for Prometheus"} | dict.fromkeys(
    ("download_model", "get_letter", "get_participants", "get_sum_letters", "get_survivors", "put_share"),
    "bytes, or checked on the way: see the tests of streams",
)
PLAIN = {"list_duties": tuple, "get_terms": str, "get_candidates": str, "get_commits": Mapping}
PLAIN |= {"put_answer": tuple, "derive_relations": Mapping, "upload_model": str, "what_if": Mapping}
"""Methods that give a part of the answer, or an answer of no fixed shape."""


def answers_of(route: APIRoute) -> tuple[Any, Any]:
    """The kinds of record a route's answer may be: outer, and of its items for lists."""
    model = route.response_model
    if isinstance(model, UnionType):
        model = get_args(model)[0]
    return get_origin(model) or model, (get_args(model) or (None,))[0]


ROUTES = {route.name: route for route in declared(build(GatewaySettings()).routes) if isinstance(route, APIRoute)}


def test_every_route_has_a_method() -> None:
    assert CALLS.keys() | ELSEWHERE.keys() == ROUTES.keys() == ACCESS.keys()


@pytest.mark.parametrize("name", list(CALLS))
async def test_an_answer_is_read_as_the_record_the_document_names(
    served: int, platform: FakePlatform, tmp_path: Path, name: str
) -> None:
    role, call = CALLS[name]
    platform.replies["AdmitModel"] = aggregation_pb2.AdmitModelReply(max_bytes=1 << 20)

    def ask() -> Any:
        with Platform(f"http://127.0.0.1:{served}", f"{role}-key", cache=BlobCache(tmp_path)) as client:
            result = call(client)
            return list(result) if isinstance(result, Iterator) else result

    result = await asyncio.to_thread(ask)
    outer, item = answers_of(ROUTES[name])
    if name in PLAIN:
        assert isinstance(result, PLAIN[name])
    elif outer is None:
        assert result is None
    elif item is not None:
        assert outer in (records.Page, records.Items)
        assert result
        assert {type(entry) for entry in result} == {item}
    else:
        assert type(result) is outer
