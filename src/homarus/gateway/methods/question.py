"""`question.*`: the questions of agents to their person, and the answers."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.approval_payloads import show_question
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.methods.exec_approval import describe_caller
from homarus.gateway.params import Id
from homarus.gateway.question_payloads import QUESTION_ID, encode_answer


@method("question.list", scope="approvals", params=NoParams, advertised=False)
async def list_(call: MethodCall, _params: NoParams) -> Json:
    """The questions that wait for an answer, oldest first."""
    pending = await call.services.get_approvals().list_pending()
    return {"questions": [show_question(each) for each in pending if each.is_question]}


class QuestionAnswers(Params):
    """The answers by the ids of questions; the question of a record has the id `answer`."""

    answers: dict[str, list[Annotated[str, Field(min_length=1, max_length=2_000)]]]


class QuestionResolveParams(Params):
    """A question and its answer: a choice, its number, or a text; or that it is dismissed.

    Who answers is known by the connection; `resolvedBy` and `resolutionId` change nothing.
    """

    id: Id
    answers: QuestionAnswers | None = None
    cancel: Literal[True] | None = None
    resolved_by: str | None = None
    resolution_id: str | None = None

    @model_validator(mode="after")
    def _check_one(self) -> "QuestionResolveParams":
        if (self.answers is None) == (self.cancel is None):
            raise ValueError("either answers or cancel is needed")
        return self


@method("question.resolve", scope="approvals", params=QuestionResolveParams, advertised=False)
async def resolve(call: MethodCall, params: QuestionResolveParams) -> Json:
    """Answer a question. The first answer counts; a later one is told whose that was."""
    from homarus.agent.approval_ports import ApproverIdentity

    by, service = ApproverIdentity(describe_caller(call.caller)), call.services.get_approvals()
    if params.answers is None:
        await service.resolve(params.id, "deny", by)
        return encode_answer("")
    given = params.answers.answers.get(QUESTION_ID, [])
    if len(given) != 1 or len(params.answers.answers) != 1:
        raise InvalidRequestError(f"the answers need one text for the question {QUESTION_ID!r}")
    record = await service.answer(params.id, given[0], by)
    return encode_answer(record.answer)
