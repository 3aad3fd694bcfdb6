import type { JSX } from 'preact';
import { Badge, type Tone } from '../../components/Badge';
import { oneLine } from '../../markdown/text';
import { formatCount, formatDuration, formatUsd } from '../../state/format';
import type { SubagentNode } from './tree';

const TONES: Record<string, Tone> = {
  running: 'info',
  done: 'ok',
  failed: 'bad',
  timed_out: 'warn',
  interrupted: 'warn',
  killed: 'warn',
};

interface Props {
  node: SubagentNode;
  openId: string;
  onOpen: (runId: string) => void;
}

/** One sub-agent, and those that it started. */
export function SubagentItem({ node, openId, onOpen }: Props): JSX.Element {
  const { row, children } = node;
  const facts = [
    row.model,
    formatDuration(row.runtimeMs),
    row.totalTokens ? `${formatCount(row.totalTokens)} tokens` : '',
    row.costUsd ? formatUsd(row.costUsd) : '',
  ];
  return (
    <li>
      <button type="button" class="subagent-row" aria-pressed={row.runId === openId} onClick={() => onOpen(row.runId)}>
        <Badge tone={TONES[row.status] ?? 'neutral'}>{oneLine(row.status.replaceAll('_', ' '), 30)}</Badge>
        <span class="subagent-names">
          <strong class="clip">{oneLine(row.label ?? row.task ?? row.runId, 100)}</strong>
          <span class="tiny soft clip">{oneLine(facts.filter(Boolean).join(' · '), 160)}</span>
        </span>
      </button>
      {row.error && <p class="field-error subagent-error">{oneLine(row.error, 300)}</p>}
      {children.length > 0 && (
        <ul class="subagent-tree">
          {children.map((child) => (
            <SubagentItem key={child.row.runId} node={child} openId={openId} onOpen={onOpen} />
          ))}
        </ul>
      )}
    </li>
  );
}
