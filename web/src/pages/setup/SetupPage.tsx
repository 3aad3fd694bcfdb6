import './SetupPage.css';
import type { JSX } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Page } from '../../components/Page';
import { RequestError } from '../../gateway/errors';
import { call, may } from '../../gateway/gateway';
import type { WizardState } from '../../protocol/agent-results';
import { FirstMessage } from './FirstMessage';
import { StepForm } from './StepForm';

const STEP_TIMEOUT_MS = 180_000; // a step may log in, or wait for a message
const STORED_ID = 'homarus-setup'; // a page that was reloaded or closed leaves its setup behind

/** Set up the assistant: the gateway asks, and this page shows its questions one by one. */
export default function SetupPage(): JSX.Element {
  const [state, setState] = useState<WizardState | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const session = useRef('');
  const run = useCallback(async (work: () => Promise<WizardState>): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      let next = await work();
      if (next.sessionId) {
        session.current = next.sessionId;
        localStorage.setItem(STORED_ID, next.sessionId);
      }
      setState(next);
      while (next.step?.type === 'progress' && !next.done) {
        next = await call('wizard.next', { sessionId: session.current }, STEP_TIMEOUT_MS);
        setState(next);
      }
    } catch (reason) {
      setError(reason);
      if (reason instanceof RequestError && reason.message === 'wizard not found') setState(null);
    } finally {
      setBusy(false);
    }
  }, []);
  useEffect(() => () => void cancel(session.current), []);
  const start = (): void =>
    void run(async () => {
      await cancel(localStorage.getItem(STORED_ID) ?? '');
      return call('wizard.start', { mode: 'local' }, STEP_TIMEOUT_MS);
    });
  const answer = (stepId: string, value: unknown): void =>
    void run(() => call('wizard.next', { sessionId: session.current, answer: { stepId, value } }, STEP_TIMEOUT_MS));
  const stop = (): void => {
    void cancel(session.current);
    session.current = '';
    setState(null);
  };
  const step = state?.done ? undefined : state?.step;
  return (
    <Page title="Set up">
      <div class="stack column">
        {error !== null && <ErrorState error={error} />}
        {!state && <Start isBusy={isBusy} onStart={start} />}
        {step && <StepForm key={step.id} step={step} isBusy={isBusy} onAnswer={answer} onStop={stop} />}
        {state?.status === 'done' && <FirstMessage />}
        {state?.status === 'error' && (
          <>
            <ErrorState error={new Error(state.error ?? 'The setup failed.')} onRetry={start} />
            <p class="soft small">What was finished before is saved.</p>
          </>
        )}
      </div>
    </Page>
  );
}

async function cancel(sessionId: string): Promise<void> {
  // A wizard that has ended, or is gone, needs no end.
  if (sessionId) await call('wizard.cancel', { sessionId }).catch(() => undefined);
}

function Start({ isBusy, onStart }: { isBusy: boolean; onStart: () => void }): JSX.Element {
  if (!may('admin')) return <ErrorState error={new RequestError({ message: 'missing scope: operator.admin' })} />;
  return (
    <Card>
      <EmptyState
        icon="lightbulb"
        title="Set up your assistant"
        action={
          <Button kind="primary" isBusy={isBusy} onClick={onStart}>
            Start
          </Button>
        }
      >
        A few questions: which model answers, with a key or on this machine, the folder of its files, and a chat service if
        you want one. It takes about two minutes, and what you finish is saved.
      </EmptyState>
    </Card>
  );
}
