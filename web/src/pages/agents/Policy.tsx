import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge, type Tone } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { type Column, Table } from '../../components/Table';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { PolicyRow } from '../../protocol/agent-results';
import { PolicyDialog } from './PolicyDialog';

export const ACTION_TONES: Record<string, Tone> = { allow: 'ok', ask: 'warn', deny: 'bad' };
const WORDS: Record<string, string> = { allow: 'allowed', ask: 'asks first', deny: 'denied' };

/** What an agent may do in its main conversation, and which rule says so. */
export function Policy({ agentId }: { agentId: string }): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('policy.list', { agentId });
  const [search, setSearch] = useState('');
  const [tool, setTool] = useState('');
  const rows = data?.tools.filter((row) => `${row.tool} ${row.action} ${row.reason}`.toLowerCase().includes(search.toLowerCase()));
  const columns: Column<PolicyRow>[] = [
    { title: 'Tool', render: (row) => <span class="mono">{oneLine(row.tool, 60)}</span> },
    { title: 'Decision', render: (row) => <Badge tone={ACTION_TONES[row.action] ?? 'neutral'}>{WORDS[row.action] ?? row.action}</Badge> },
    {
      title: 'Rule',
      isMinor: true,
      render: (row) => (
        <>
          <span class="mono">{oneLine(row.layer, 40)}</span>
          <div class="soft">{escapeInvisible(row.reason)}</div>
        </>
      ),
    },
    {
      title: 'Explain',
      align: 'end',
      render: (row) => (
        <Button small label={`Explain ${row.tool}`} icon="question" onClick={() => setTool(row.tool)} />
      ),
    },
  ];
  return (
    <Card title="Tools for the owner, in the main conversation">
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {isLoading && !data && <Loading />}
      {rows && (
        <div class="stack">
          <Field label="Filter tools">
            {(ids) => (
              <input class="input" type="search" {...ids} value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
            )}
          </Field>
          <Table
            label="Tools"
            columns={columns}
            rows={rows}
            getKey={(row) => row.tool}
            empty={<p class="soft">No tool matches.</p>}
          />
        </div>
      )}
      {tool && <PolicyDialog agentId={agentId} tool={tool} onClose={() => setTool('')} />}
    </Card>
  );
}
