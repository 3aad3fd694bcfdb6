import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { isConnected } from '../gateway/gateway';
import { escapeInvisible, oneLine } from '../markdown/text';
import type { ApprovalPayload } from '../protocol/protocol.generated';
import { decide, type Decision } from '../state/approvals';
import { parsePlan } from '../state/plan';
import { sessions, titleOf } from '../state/sessions';
import { Button } from './Button';
import { ErrorState } from './ErrorState';
import { KeyValues } from './KeyValues';
import { PendingCard } from './PendingCard';

interface Props {
  approval: ApprovalPayload;
  /** The conversation is the one that is shown. */
  isInChat?: boolean;
}

const MAX_CHARS = 20_000;

/** A tool call that waits: exactly what would run, what would be allowed, who asked, and why. */
export function ApprovalCard({ approval, isInChat = false }: Props): JSX.Element {
  const { id, request, expiresAtMs } = approval;
  const [busy, setBusy] = useState<Decision | null>(null);
  const [error, setError] = useState<unknown>(null);
  const detail = escapeInvisible(text(request.detail) || text(request.command));
  const plan = parsePlan(detail, text(request.reason));
  const isComplete = detail.length <= MAX_CHARS;
  const always = text(request.always);
  const answer = (decision: Decision): void => {
    setBusy(decision);
    setError(null);
    decide(id, decision).catch((failure: unknown) => {
      setBusy(null);
      setError(failure);
    });
  };
  const button = (decision: Decision, kind: 'primary' | 'plain' | 'danger', words: string, isReady: boolean): JSX.Element => (
    <Button kind={kind} isBusy={busy === decision} disabled={!isReady || busy !== null} onClick={() => answer(decision)}>
      {words}
    </Button>
  );
  return (
    <PendingCard
      id={id}
      icon={text(request.tool) === 'exec' ? 'term' : 'shield'}
      title={oneLine(text(request.title) || 'Run this command?', 120)}
      expiresAtMs={expiresAtMs}
      actions={(isReady) => (
        <>
          {isComplete && button('allow-once', 'primary', 'Allow once', isReady)}
          {isComplete && always && button('allow-always', 'plain', 'Always allow', isReady)}
          {button('deny', 'danger', 'Deny', isConnected.value)}
        </>
      )}
    >
      <pre tabIndex={0}>{plan.body.slice(0, MAX_CHARS)}</pre>
      {!isComplete && <p class="small">This is too long to be shown here: “homarus approvals list” shows all of it.</p>}
      <KeyValues
        rows={[
          ...plan.rows,
          ['Asked by', askedBy(request, isInChat)],
          ['Why asked', oneLine(text(request.reason), 300)],
          ['Always allow', always && !plan.rows.some(([name]) => name === 'Always') && `would save: ${oneLine(always, 300)}`],
        ]}
      />
      {error !== null && <ErrorState error={error} />}
    </PendingCard>
  );
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Return the agent and the conversation that a request came from. */
export function askedBy(request: Readonly<Record<string, unknown>>, isInChat = false): string {
  const key = text(request.sessionKey);
  const row = sessions.value.find((session) => session.key === key);
  const conversation = !key ? '' : isInChat ? 'this conversation' : titleOf(row, key);
  return [text(request.agentId), conversation].filter(Boolean).map((each) => oneLine(each, 80)).join(' · ');
}
