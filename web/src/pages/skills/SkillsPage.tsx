import './SkillsPage.css';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { navigate, route } from '../../app/router';
import { AgentSelect } from '../../components/AgentSelect';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { Tabs } from '../../components/Tabs';
import { may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { SkillRow } from '../../protocol/skill-results';
import { HubSearch } from './HubSearch';
import { SkillItem } from './SkillItem';
import { countStates, matchesSkill, type SkillFilter } from './filter';

/** The skills of an agent: which can be used, what the others lack, and a registry of more. */
export default function SkillsPage(): JSX.Element {
  const agents = useRequest('agents.list', {});
  const wanted = route.value.query.agent;
  const agentId = wanted ?? agents.data?.defaultId ?? '';
  const { data, error, isLoading, reload } = useRequest('skills.status', wanted ? { agentId: wanted } : {});
  const [isHub, setHub] = useState(false);
  return (
    <Page
      title="Skills"
      aside={
        <>
          <AgentSelect agents={agents.data?.agents ?? []} selected={agentId} onSelect={(agent) => navigate('skills', { agent })} />
          {may('admin') && (
            <Button icon="plus" onClick={() => setHub(true)}>
              Find skills
            </Button>
          )}
        </>
      }
    >
      <div class="stack">
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {isLoading && !data && <Loading />}
        {data && <SkillList key={agentId} agentId={wanted} skills={data.skills} onChanged={reload} />}
        {data && data.problems.length > 0 && (
          <Card title="Not used" aside={<Badge tone="warn">{data.problems.length}</Badge>}>
            <ul class="skill-problems">
              {data.problems.map((problem) => (
                <li key={problem.path}>
                  <span class="mono tiny">{oneLine(problem.path, 160)}</span>
                  <div class="small">{escapeInvisible([problem.message, problem.fix].filter(Boolean).join('. '))}</div>
                </li>
              ))}
            </ul>
          </Card>
        )}
      </div>
      {isHub && <HubSearch agentId={wanted} onClose={() => setHub(false)} onInstalled={reload} />}
    </Page>
  );
}

interface ListProps {
  /** Undefined for the default agent. */
  agentId: string | undefined;
  skills: readonly SkillRow[];
  onChanged: () => void;
}

function SkillList({ agentId, skills, onChanged }: ListProps): JSX.Element {
  const [filter, setFilter] = useState<SkillFilter>('all');
  const [search, setSearch] = useState('');
  const counts = countStates(skills);
  const shown = skills.filter((skill) => matchesSkill(skill, filter, search));
  if (!skills.length)
    return (
      <EmptyState icon="bolt" title="No skills">
        A skill is a folder with instructions for a task. Find one in the registry, or put one into the workspace.
      </EmptyState>
    );
  return (
    <>
      <Tabs
        label="Which skills"
        tabs={[
          { id: 'all', label: 'All', count: skills.length },
          { id: 'ready', label: 'Ready', count: counts.ready },
          { id: 'missing', label: 'Needs setup', count: counts.missing },
          { id: 'disabled', label: 'Disabled', count: counts.disabled },
        ]}
        selected={filter}
        onSelect={setFilter}
      />
      <div role="tabpanel" aria-label="Skills" class="stack">
        <Field label="Filter skills">
          {(ids) => (
            <input class="input" type="search" {...ids} value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
          )}
        </Field>
        <ul class="skill-list" aria-label="Skills">
          {shown.map((skill) => (
            <SkillItem key={skill.skillKey} agentId={agentId} skill={skill} onChanged={onChanged} />
          ))}
        </ul>
        {!shown.length && <p class="soft">No skill matches.</p>}
      </div>
    </>
  );
}
