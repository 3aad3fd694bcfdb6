"""`question.*`: the questions of agents to their person, and the answers."""

from typing import Annotated

from pydantic import Field

from homarus.core.message import Json
from homarus.gateway.approval_payloads import show_question
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.methods.exec_approval import describe_caller
from homarus.gateway.params import Id


@method("question.list", scope="approvals", params=NoParams, advertised=False)
async def list_(call: MethodCall, _params: NoParams) -> Json:
    """The questions that wait for an answer, oldest first."""
    pending = await call.services.get_approvals().list_pending()
    return [show_question(each) for each in pending if each.is_question]


class QuestionResolveParams(Params):
    """A question and its answer: a choice, its number, or a text; without one it is dismissed."""

    id: Id
    answer: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None


@method("question.resolve", scope="approvals", params=QuestionResolveParams, advertised=False)
async def resolve(call: MethodCall, params: QuestionResolveParams) -> Json:
    """Answer a question. The first answer counts; a later one is told whose that was."""
    from homarus.agent.approval_ports import ApproverIdentity

    by, service = ApproverIdentity(describe_caller(call.caller)), call.services.get_approvals()
    if params.answer is None:
        await service.resolve(params.id, "deny", by)
        return {"ok": True, "answer": None}
    record = await service.answer(params.id, params.answer, by)
    return {"ok": True, "answer": record.answer}
