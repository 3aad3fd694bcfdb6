import type { JSX } from 'preact';
import { Card } from '../../components/Card';
import { KeyValues } from '../../components/KeyValues';
import { hello } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { GatewayStatus, Sandbox } from '../../protocol/operation-results';
import type { MethodResults } from '../../protocol/results';

interface Props {
  status: GatewayStatus;
  health: MethodResults['health'] | null;
}

/** The machinery: memory search, sandboxes, disk and event loop. */
export function SystemCard({ status, health }: Props): JSX.Element {
  const { data: memory, error } = useRequest('memory.status', {});
  const recall = memory?.recall;
  return (
    <Card title="System" class="wide">
      <KeyValues
        rows={[
          ['Version', hello.value?.server.version],
          ['Conversations', status.sessions.count],
          [
            'Recall',
            error !== null
              ? 'memory is off or cannot be read'
              : recall
                ? `${recall.p50Ms} ms typical, ${recall.p95Ms} ms slowest 5 % of ${recall.count} searches`
                : 'no search since the start',
          ],
          ['Memory', memory && (oneLine(memory.problem ?? '') || `${memory.files ?? 0} notes indexed`)],
          ['Disk', health?.disk && (health.disk.ok ? 'can be written' : oneLine(health.disk.problem ?? 'cannot be written'))],
          ['Event loop', `${status.loop.lagP99Ms} ms lag (99 %), ${status.loop.stalls} stalls`],
          ...status.sandboxes.map(
            (sandbox) => [`Sandbox ${oneLine(sandbox.agentId, 40)}`, describeSandbox(sandbox)] as const,
          ),
        ]}
      />
    </Card>
  );
}

function describeSandbox(sandbox: Sandbox): string {
  if (sandbox.mode === 'off') return 'off: commands run on this machine';
  const level = sandbox.level ?? 'not measured yet';
  return `${sandbox.backend ?? '?'} · ${level} · mode ${sandbox.mode} · workspace ${sandbox.workspaceAccess ?? '?'}`;
}
