import './SubagentsPage.css';
import type { JSX } from 'preact';
import { useCallback, useEffect, useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { Confirm } from '../../components/Confirm';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { call, may, onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { SubagentRow } from '../../protocol/agent-results';
import { showToast } from '../../state/toasts';
import { useInterval } from '../../state/useInterval';
import { SubagentItem } from './SubagentItem';
import { SubagentPanel } from './SubagentPanel';
import { buildTree } from './tree';

const REFRESH_MS = 5_000;
const RECENT_MINUTES = 1_440;

/** The sub-agents of the last day, below the conversations that started them. */
export default function SubagentsPage(): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('subagents.list', { recentMinutes: RECENT_MINUTES });
  const [openId, setOpenId] = useState('');
  const [isStopping, setStopping] = useState(false);
  useEffect(() => onEvent('sessions.changed', reload), [reload]);
  const isActive = (data?.active.length ?? 0) > 0;
  const refresh = useCallback(() => {
    if (isActive) reload(); // how long they run, and what they used
  }, [isActive, reload]);
  useInterval(refresh, REFRESH_MS);
  const rows: SubagentRow[] = data ? [...data.active, ...data.recent] : [];
  const open = rows.find((row) => row.runId === openId);
  return (
    <Page
      title="Sub-agents"
      badges={isActive && <Badge tone="info">{data?.active.length} active</Badge>}
      aside={
        isActive &&
        may('write') && (
          <Button kind="danger" icon="stop" onClick={() => setStopping(true)}>
            Stop all
          </Button>
        )
      }
    >
      <div class="stack">
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {isLoading && !data && <Loading />}
        {data && !rows.length && (
          <EmptyState icon="tree" title="No sub-agents">
            An agent starts them for work that can be done beside a conversation. Those of the last day are shown here.
          </EmptyState>
        )}
        {buildTree(rows).map((root) => (
          <Card key={root.sessionKey} title={<span class="mono">{oneLine(root.sessionKey || 'unknown session', 80)}</span>}>
            <ul class="subagent-tree" aria-label={`Sub-agents of ${oneLine(root.sessionKey, 80)}`}>
              {root.children.map((node) => (
                <SubagentItem key={node.row.runId} node={node} openId={openId} onOpen={setOpenId} />
              ))}
            </ul>
          </Card>
        ))}
      </div>
      {open && <SubagentPanel row={open} onClose={() => setOpenId('')} onChanged={reload} />}
      {isStopping && (
        <Confirm
          title="Stop all sub-agents"
          verb="Stop all"
          onClose={() => setStopping(false)}
          onConfirm={async () => {
            const { text } = await call('subagents.kill', { target: 'all' });
            showToast({ tone: 'ok', text });
            reload();
          }}
        >
          <p>Every active sub-agent stops. What they have done so far stays in their conversations.</p>
        </Confirm>
      )}
    </Page>
  );
}
