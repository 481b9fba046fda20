"""The roles that may use each route; all other routes are closed.

`ownership.py` and the services decide which objects a caller with the role may see.
"""

from __future__ import annotations

ADMIN, PUBLISHER, DEVICE = "admin", "publisher", "device"

Roles = frozenset[str]
PUBLIC: Roles = frozenset({"*"})
NO_ROLES: Roles = frozenset()
_ADMINS: Roles = frozenset({ADMIN})
_DEVICES: Roles = frozenset({DEVICE})
_PUBLISHERS: Roles = frozenset({ADMIN, PUBLISHER})
_DEVICES_AND_ADMINS: Roles = frozenset({ADMIN, DEVICE})
_ALL: Roles = frozenset({ADMIN, PUBLISHER, DEVICE})

ACCESS: dict[str, Roles] = {
    # public
    "live": PUBLIC,
    "ready": PUBLIC,
    "metrics": PUBLIC,
    "register_device": PUBLIC,
    "claim_link": PUBLIC,
    "begin_session": PUBLIC,
    # identity
    "get_me": _ALL,
    "create_owner": _ADMINS,
    "list_owners": _ADMINS,
    "get_owner": _DEVICES_AND_ADMINS,
    "update_owner": _ADMINS,
    "issue_token": _ADMINS,
    "list_devices": _DEVICES_AND_ADMINS,
    "get_device": _DEVICES_AND_ADMINS,
    "get_keys": _DEVICES_AND_ADMINS,
    "update_device": _DEVICES_AND_ADMINS,
    "heartbeat": _DEVICES,
    "rotate_keys": _DEVICES,
    "revoke_device": _DEVICES_AND_ADMINS,
    "erase_device": _DEVICES_AND_ADMINS,
    # owners' browsers
    "make_link": _DEVICES,
    "list_links": _DEVICES_AND_ADMINS,
    "end_link": _DEVICES_AND_ADMINS,
    "put_note": _DEVICES,
    "decide": _DEVICES,
    "list_decisions": _DEVICES,
    "answer_decision": _DEVICES,
    "create_key": _ADMINS,
    "list_keys": _ADMINS,
    "rotate_key": _PUBLISHERS,
    "revoke_key": _ADMINS,
    "list_audit": _ADMINS,
    "verify_audit": _ADMINS,
    "versions": _ADMINS,
    # social memory
    "record_interactions": _DEVICES_AND_ADMINS,
    "list_interactions": _DEVICES_AND_ADMINS,
    "explain_trust": _DEVICES_AND_ADMINS,
    "get_history": _DEVICES_AND_ADMINS,
    "list_peers": _DEVICES_AND_ADMINS,
    "get_graph": _PUBLISHERS,
    "list_losses": _ADMINS,
    "list_relations": _DEVICES_AND_ADMINS,
    "derive_relations": _ADMINS,
    "declare_friendship": _DEVICES_AND_ADMINS,
    "list_friendships": _DEVICES_AND_ADMINS,
    "import_rows": _ADMINS,
    "get_import": _ADMINS,
    # tasks
    "create_task": _PUBLISHERS,
    "list_tasks": _ALL,
    "get_task": _ALL,
    "start_task": _PUBLISHERS,
    "cancel_task": _PUBLISHERS,
    "get_plan": _PUBLISHERS,
    "list_rounds": _ALL,
    "get_round": _PUBLISHERS,
    "list_participations": _ALL,
    "list_events": _PUBLISHERS,
    "list_models": _ALL,
    "report_measurement": _ALL,
    "list_measurements": _ALL,
    "replay_task": _PUBLISHERS,
    "ask_evaluation": _PUBLISHERS,
    "answer_evaluation": _PUBLISHERS,
    "list_contributions": _ALL,
    "list_enrolments": _PUBLISHERS,
    "enrol": _DEVICES_AND_ADMINS,
    "withdraw": _DEVICES_AND_ADMINS,
    # work
    "get_work": _DEVICES,
    "put_update": _DEVICES,
    "decline_work": _DEVICES,
    "object_to_verdict": _DEVICES,
    "send_letter": _DEVICES,
    "list_letters": _DEVICES,
    "get_letter": _DEVICES,
    "report_links": _DEVICES_AND_ADMINS,
    # secure sums: services/aggregation checks participants and clerks
    "list_duties": _DEVICES,
    "put_key_offer": _DEVICES,
    "get_terms": _DEVICES,
    "get_participants": _DEVICES,
    "get_candidates": _DEVICES,
    "get_sum_letters": _DEVICES,
    "put_ready_check": _DEVICES,
    "get_survivors": _DEVICES,
    "put_commit": _DEVICES,
    "get_commits": _DEVICES,
    "put_answer": _DEVICES,
    "put_share": _DEVICES,
    "upload_model": _PUBLISHERS,
    "download_model": _ALL,
    "forget_model": _PUBLISHERS,
    "sweep_blobs": _ADMINS,
    "prune_tasks": _ADMINS,
    # money and privacy
    "get_prices": _ALL,
    "list_accounts": _ADMINS,
    "get_account": _ALL,
    "get_statement": _ALL,
    "deposit": _ADMINS,
    "list_payments": _ALL,
    "summarise_payments": _PUBLISHERS,
    "verify_payments": _ADMINS,
    "get_privacy": _DEVICES_AND_ADMINS,
    # topology
    "list_cells": _PUBLISHERS,
    "get_cell": _PUBLISHERS,
    "put_cell": _ADMINS,
    "remove_cell": _ADMINS,
    "list_policies": _PUBLISHERS,
    "train_policy": _ADMINS,
    # solvers
    "what_if": _PUBLISHERS,
}

BROWSER_ROUTES = frozenset(
    {
        "get_me",
        "get_owner",
        "list_devices",
        "get_device",
        "revoke_device",
        "erase_device",
        "list_links",
        "end_link",
        "decide",
        "list_decisions",
        "list_tasks",
        "get_task",
        "list_rounds",
        "list_participations",
        "list_contributions",
        "get_prices",
        "get_account",
        "get_statement",
        "list_payments",
        "get_privacy",
        "explain_trust",
        "get_history",
        "list_peers",
        "list_relations",
        "list_friendships",
    }
)
"""Routes for the key of a linked browser: reads for the owner, decisions, and leaving. Such a key cannot work, send
letters, make links or enrol the device."""
