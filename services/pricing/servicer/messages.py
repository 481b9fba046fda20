"""From records to messages and back."""

from __future__ import annotations

from typing import Any

from coterie.privacy.accounting import Answer
from coterie.privacy.claims import charge_of
from coterie.records.enums import ParticipationState, PostingKind, PrivacyAdjacency, PrivacyUnit
from coterie_api.pricing.v1 import pricing_pb2 as pb
from services.kit.rpc.claims import read_claim
from services.kit.rpc.enums import number, word
from services.kit.rpc.proto_json import fill
from services.pricing.domain import ledger, records
from services.pricing.domain.ledger_settlement import Work
from services.pricing.domain.payoffs import Cluster, GameParameters, Payoffs

DETAILS = {
    "payoff": "pot_details",
    "contribution": "pot_details",
    "stackelberg": "market_details",
    "correlated": "survey_details",
}
"""The details message of each built-in incentive; plug-ins have none."""


def to_quote(quote: records.Quote) -> pb.Quote:
    made = pb.Quote(
        task_id=quote.task_id,
        round=quote.round,
        offers=[_offer(offer) for offer in quote.offers],
        status=number(quote.status),
        pot_microcredits=quote.pot_microcredits,
    )
    if quote.details and quote.incentive in DETAILS:
        fill(getattr(made, DETAILS[quote.incentive]), quote.details)
    return made


def _offer(offer: records.Offer) -> pb.Offer:
    terms = None if offer.terms is None else pb.Terms(**_fields(offer.terms))
    return pb.Offer(**_fields(offer) | {"terms": terms})


def to_account(account: records.Account) -> pb.Account:
    return pb.Account(id=account.id, balance_microcredits=account.balance_microcredits, opened_at=account.opened_at)


def to_payment(payment: ledger.Payment) -> pb.Payment:
    return pb.Payment(**payment._asdict())


def to_settlement(settled: records.Settled) -> pb.Settlement:
    result = settled.settlement
    return pb.Settlement(
        task_id=result.task_id,
        round=result.round,
        paid_microcredits=result.paid_microcredits,
        escrow_microcredits=result.escrow_microcredits,
        payments=[to_payment(payment) for payment in settled.payments],
        exhausted=result.exhausted,
        fresh=settled.fresh,
    )


def to_statement(statement: records.Statement) -> pb.Statement:
    return pb.Statement(
        account=to_account(statement.account),
        opening_microcredits=statement.opening_microcredits,
        closing_microcredits=statement.closing_microcredits,
        postings=[
            pb.Posting(
                entry=line.entry,
                at=line.at,
                account_id=line.account_id,
                amount_microcredits=line.amount_microcredits,
                kind=number(PostingKind(line.kind)),
                note=line.note,
            )
            for line in statement.lines
        ],
        next_cursor=statement.next_cursor,
    )


def to_summary(summary: records.Summary) -> pb.Summary:
    return pb.Summary(
        outstanding_microcredits=summary.outstanding_microcredits,
        paid_microcredits=summary.paid_microcredits,
        earners=[pb.Earner(**_fields(earner)) for earner in summary.earners],
        tasks=[pb.TaskCost(**_fields(task)) for task in summary.tasks],
        anomalies=summary.anomalies,
    )


def to_privacy(report: records.PrivacyReport) -> pb.PrivacyReport:
    return pb.PrivacyReport(
        device_id=report.device_id,
        delta=report.delta,
        tasks=[
            pb.TaskPrivacy(task_id=task.task_id, rounds=task.rounds, **_answer(task.answer)) for task in report.tasks
        ],
        **_answer(report.answer),
    )


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "unit": number(PrivacyUnit(answer.question.unit)),
        "adjacency": number(PrivacyAdjacency(answer.question.adjacency)),
        "epsilon": answer.epsilon,
        "epsilon_replaced": answer.epsilon_replaced,
        "in_words": str(answer),
    }


def from_work(work: pb.Work) -> Work:
    return Work(
        device_id=work.device_id,
        owner_id=work.owner_id,
        outcome=word(ParticipationState, work.outcome),
        budget=work.budget,
        quality=work.quality,
        charges=tuple(charge_of(read_claim(claim)) for claim in work.privacy),
        excluded_because=work.excluded_because,
    )


def from_payoffs(payoffs: pb.Payoffs) -> Payoffs:
    clusters = [
        Cluster(
            cluster.head_device_id,
            qualities={member.device_id: member.quality for member in cluster.members},
            alone={member.device_id: member.solo_payoff for member in cluster.members},
            game_parameters=GameParameters(
                cluster.game_parameters.price, cluster.game_parameters.member_cost, cluster.game_parameters.head_reward
            ),
        )
        for cluster in payoffs.clusters
    ]
    return Payoffs(clusters, payoffs.credits_per_point, payoffs.pot_microcredits)


def _fields(record: Any) -> dict[str, Any]:
    """A record's fields by name, without the copies that `dataclasses.asdict` makes of each value."""
    return {name: getattr(record, name) for name in record.__slots__}
