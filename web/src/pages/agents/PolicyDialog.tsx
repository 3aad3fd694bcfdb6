import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { Table } from '../../components/Table';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import { ACTION_TONES } from './Policy';

interface Props {
  agentId: string;
  tool: string;
  onClose: () => void;
}

/** What each layer of the policy says about one tool, also with the arguments of a call. */
export function PolicyDialog({ agentId, tool, onClose }: Props): JSX.Element {
  const [text, setText] = useState(tool === 'exec' ? '{"command": "ls"}' : '');
  const [args, setArgs] = useState<Record<string, unknown> | null>(null);
  const [problem, setProblem] = useState('');
  const { data, error, reload } = useRequest('policy.explain', { agentId, tool, ...(args ? { args } : {}) });
  const explain = (event: Event): void => {
    event.preventDefault();
    try {
      const parsed: unknown = text.trim() ? JSON.parse(text) : null;
      if (parsed !== null && (typeof parsed !== 'object' || Array.isArray(parsed))) throw new Error('Write a JSON object.');
      setArgs(parsed as Record<string, unknown> | null);
      setProblem('');
    } catch (reason) {
      setProblem(reason instanceof Error ? reason.message : String(reason));
    }
  };
  return (
    <Dialog title={`Policy of ${oneLine(tool, 40)}`} onClose={onClose} wide>
      <div class="stack">
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {!data && error === null && <Loading />}
        {data && (
          <>
            <p>
              <Badge tone={ACTION_TONES[data.action] ?? 'neutral'}>{data.action}</Badge> by{' '}
              <span class="mono">{oneLine(data.layer, 60)}</span>: {escapeInvisible(data.reason)}
            </p>
            <Table
              label="Layers of the policy"
              rows={data.verdicts}
              getKey={(verdict) => verdict.layer}
              columns={[
                { title: 'Layer', render: (verdict) => <span class="mono">{oneLine(verdict.layer, 60)}</span> },
                { title: 'Says', isShort: true, render: (verdict) => verdict.action ?? 'nothing' },
                { title: 'Reason', render: (verdict) => escapeInvisible(verdict.reason) },
              ]}
            />
            {data.notes.map((note) => (
              <p key={note} class="soft small">
                {escapeInvisible(note)}
              </p>
            ))}
          </>
        )}
        <form class="stack" onSubmit={explain}>
          <Field label="Arguments of a call" hint="As JSON. Nothing is run." error={problem}>
            {(ids) => (
              <textarea class="input mono" rows={3} spellcheck={false} {...ids} value={text} onInput={(event) => setText(event.currentTarget.value)} />
            )}
          </Field>
          <div>
            <Button type="submit">Explain this call</Button>
          </div>
        </form>
      </div>
    </Dialog>
  );
}
