import './AgentsPage.css';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { navigate, route } from '../../app/router';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { Tabs } from '../../components/Tabs';
import { may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { AgentRow } from '../../protocol/agent-results';
import { AgentForm } from './AgentForm';
import { Bindings } from './Bindings';
import { Identity } from './Identity';
import { Policy } from './Policy';
import { WorkspaceFiles } from './WorkspaceFiles';

const TABS = [
  { id: 'identity', label: 'Identity' },
  { id: 'files', label: 'Files' },
  { id: 'bindings', label: 'Bindings' },
  { id: 'policy', label: 'Policy' },
] as const;
type TabId = (typeof TABS)[number]['id'];

/** The agents: who each of them is, its files, what reaches it and what it may do. */
export default function AgentsPage(): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('agents.list', {});
  const [isAdding, setAdding] = useState(false);
  const id = route.value.query.id ?? data?.defaultId ?? '';
  const agent = data?.agents.find((one) => one.id === id);
  return (
    <Page
      title="Agents"
      aside={
        may('admin') && (
          <Button icon="plus" onClick={() => setAdding(true)}>
            Add agent
          </Button>
        )
      }
    >
      <div class="stack">
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {isLoading && !data && <Loading />}
        {data && <AgentPicker agents={data.agents} defaultId={data.defaultId} selected={id} />}
        {data && !agent && <p class="soft">There is no agent {oneLine(id, 60)}: choose one above.</p>}
        {data && agent && (
          <AgentDetail key={agent.id} agent={agent} isDefault={agent.id === data.defaultId} onChanged={reload} />
        )}
      </div>
      {isAdding && <AgentForm onClose={() => setAdding(false)} onSaved={reload} />}
    </Page>
  );
}

export function agentName(agent: AgentRow): string {
  return oneLine(agent.identity?.name ?? agent.name ?? agent.id, 60);
}

interface PickerProps {
  agents: readonly AgentRow[];
  defaultId: string;
  selected: string;
}

function AgentPicker({ agents, defaultId, selected }: PickerProps): JSX.Element {
  const tab = route.value.query.tab;
  return (
    <ul class="agent-list" aria-label="Agents">
      {agents.map((agent) => (
        <li key={agent.id}>
          <button
            type="button"
            class="agent-card"
            aria-pressed={agent.id === selected}
            onClick={() => navigate('agents', { id: agent.id, ...(tab ? { tab } : {}) })}
          >
            <span class="agent-mark" aria-hidden="true">
              {agent.identity?.emoji ?? agentName(agent).slice(0, 1).toUpperCase()}
            </span>
            <span class="agent-names">
              <strong class="clip">{agentName(agent)}</strong>
              <span class="mono tiny soft clip">{oneLine(agent.id, 60)}</span>
            </span>
            {agent.id === defaultId && <Badge>default</Badge>}
          </button>
        </li>
      ))}
    </ul>
  );
}

interface DetailProps {
  agent: AgentRow;
  isDefault: boolean;
  onChanged: () => void;
}

function AgentDetail({ agent, isDefault, onChanged }: DetailProps): JSX.Element {
  const tab: TabId = TABS.find(({ id }) => id === route.value.query.tab)?.id ?? 'identity';
  return (
    <>
      <Tabs
        label={`Parts of ${agentName(agent)}`}
        tabs={TABS}
        selected={tab}
        onSelect={(next) => navigate('agents', { id: agent.id, tab: next }, { replace: true })}
      />
      <div role="tabpanel" aria-label={TABS.find(({ id }) => id === tab)?.label ?? ''}>
        {tab === 'identity' && <Identity agent={agent} isDefault={isDefault} onChanged={onChanged} />}
        {tab === 'files' && <WorkspaceFiles agentId={agent.id} />}
        {tab === 'bindings' && <Bindings agentId={agent.id} isDefault={isDefault} />}
        {tab === 'policy' && <Policy agentId={agent.id} />}
      </div>
    </>
  );
}
