import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { escapeInvisible } from '../markdown/text';
import type { QuestionPayload } from '../protocol/protocol.generated';
import { answer } from '../state/approvals';
import { askedBy, text } from './ApprovalCard';
import { Button } from './Button';
import { ErrorState } from './ErrorState';
import { KeyValues } from './KeyValues';
import { PendingCard } from './PendingCard';

interface Props {
  question: QuestionPayload;
  isInChat?: boolean;
}

/** A question of an agent: a button for each choice, and a field where text is accepted. */
export function QuestionCard({ question, isInChat = false }: Props): JSX.Element {
  const [reply, setReply] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const asked = question.questions[0] ?? {};
  const choices = Array.isArray(asked.options) ? (asked.options as { label?: unknown }[]).map(({ label }) => text(label)) : [];
  const send = (words: string | null): void => {
    setBusy(true);
    setError(null);
    answer(question.id, text(asked.questionId) || 'answer', words).catch((failure: unknown) => {
      setBusy(false);
      setError(failure);
    });
  };
  return (
    <PendingCard
      id={question.id}
      icon="question"
      title="A question of the agent"
      expiresAtMs={question.expiresAtMs}
      actions={(isReady) => (
        <>
          {choices.map((choice) => (
            <Button key={choice} disabled={!isReady || isBusy} onClick={() => send(choice)}>
              {escapeInvisible(choice)}
            </Button>
          ))}
          {asked.isOther === true && (
            <form
              class="row"
              onSubmit={(event) => {
                event.preventDefault();
                if (reply.trim()) send(reply.trim());
              }}
            >
              <input
                class="input"
                aria-label="Your answer"
                maxLength={2000}
                value={reply}
                onInput={(event) => setReply(event.currentTarget.value)}
              />
              <Button kind="primary" type="submit" disabled={!isReady || isBusy || !reply.trim()}>
                Answer
              </Button>
            </form>
          )}
          <Button kind="danger" disabled={!isReady || isBusy} onClick={() => send(null)}>
            Dismiss
          </Button>
        </>
      )}
    >
      <p>{escapeInvisible(text(asked.question))}</p>
      <KeyValues rows={[['Asked by', askedBy(question as unknown as Record<string, unknown>, isInChat)]]} />
      {error !== null && <ErrorState error={error} />}
    </PendingCard>
  );
}
