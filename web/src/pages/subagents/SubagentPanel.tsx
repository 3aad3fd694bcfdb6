import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from '../../app/Link';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { KeyValues } from '../../components/KeyValues';
import { Loading } from '../../components/Loading';
import { call, may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { SubagentRow } from '../../protocol/agent-results';
import { formatDateTime } from '../../state/format';
import { showToast } from '../../state/toasts';

const LOG_LIMIT = 50;

interface Props {
  row: SubagentRow;
  onClose: () => void;
  onChanged: () => void;
}

/** What a sub-agent does: its task and its messages; an active one is steered or stopped here. */
export function SubagentPanel({ row, onClose, onChanged }: Props): JSX.Element {
  const log = useRequest('subagents.log', { target: row.runId, limit: LOG_LIMIT, tools: true });
  const isActive = row.endedAt === undefined;
  return (
    <Dialog title={oneLine(row.label ?? row.task ?? row.runId, 80)} onClose={onClose} wide>
      <div class="stack">
        <KeyValues
          rows={[
            ['Status', row.status.replaceAll('_', ' ')],
            ['Error', escapeInvisible(row.error ?? '')],
            ['Task', escapeInvisible(row.task ?? '')],
            ['Agent', row.agentId ?? ''],
            ['Started', row.startedAt ? formatDateTime(row.startedAt) : ''],
            ['Ended', row.endedAt ? formatDateTime(row.endedAt) : ''],
          ]}
        />
        {isActive && may('write') && <Steering row={row} onChanged={onChanged} />}
        <section aria-label="Messages">
          <div class="row">
            <h3 class="subagent-title">Messages</h3>
            <span class="spread">
              <Button small icon="retry" isBusy={log.isLoading} onClick={log.reload}>
                Load again
              </Button>
            </span>
          </div>
          {log.error !== null && <ErrorState error={log.error} onRetry={log.reload} />}
          {!log.data && log.error === null && <Loading />}
          {log.data && !log.data.messages.length && <p class="soft small">It has no messages yet.</p>}
          <ol class="subagent-log">
            {log.data?.messages.map((message, at) => (
              <li key={at}>
                <span class="tiny soft">{oneLine(message.role, 30)}</span>
                <p>{escapeInvisible(message.text)}</p>
              </li>
            ))}
          </ol>
        </section>
        <Link to="chat" query={{ session: row.sessionKey }}>
          Open its conversation
        </Link>
      </div>
    </Dialog>
  );
}

function Steering({ row, onChanged }: Omit<Props, 'onClose'>): JSX.Element {
  const [text, setText] = useState('');
  const [busy, setBusy] = useState('');
  const [error, setError] = useState<unknown>(null);
  const act = (name: string, work: () => Promise<{ text: string }>): void => {
    setBusy(name);
    setError(null);
    work()
      .then((done) => {
        setText('');
        showToast({ tone: 'ok', text: done.text });
        onChanged();
      }, setError)
      .finally(() => setBusy(''));
  };
  const steer = (event: Event): void => {
    event.preventDefault();
    act('steer', () => call('subagents.steer', { target: row.runId, message: text.trim(), idempotencyKey: crypto.randomUUID() }));
  };
  return (
    <form class="stack" onSubmit={steer}>
      <Field label="Message to the sub-agent" hint="It goes on with it at once.">
        {(ids) => (
          <textarea class="input" rows={2} maxLength={4000} {...ids} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        )}
      </Field>
      {error !== null && <ErrorState error={error} />}
      <div class="row">
        <Button type="submit" isBusy={busy === 'steer'} disabled={!text.trim()}>
          Send message
        </Button>
        <Button kind="danger" icon="stop" isBusy={busy === 'kill'} onClick={() => act('kill', () => call('subagents.kill', { target: row.runId }))}>
          Stop sub-agent
        </Button>
      </div>
    </form>
  );
}
