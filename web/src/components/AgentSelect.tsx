import './AgentSelect.css';
import type { JSX } from 'preact';
import { oneLine } from '../markdown/text';
import type { AgentRow } from '../protocol/agent-results';

interface Props {
  agents: readonly AgentRow[];
  selected: string;
  onSelect: (agentId: string) => void;
}

/** Choose an agent; nothing is shown where there is only one. */
export function AgentSelect({ agents, selected, onSelect }: Props): JSX.Element | null {
  if (agents.length < 2) return null;
  return (
    <select class="input agent-select" aria-label="Agent" value={selected} onChange={(event) => onSelect(event.currentTarget.value)}>
      {agents.map((agent) => (
        <option key={agent.id} value={agent.id}>
          {oneLine(agent.identity?.name ?? agent.name ?? agent.id, 40)}
        </option>
      ))}
    </select>
  );
}
