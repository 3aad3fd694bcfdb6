import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { KeyValues } from '../../components/KeyValues';
import { call, may } from '../../gateway/gateway';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { SkillRow } from '../../protocol/skill-results';
import { showToast } from '../../state/toasts';
import { skillState } from './filter';
import { SkillKey } from './SkillKey';

const INSTALL_TIMEOUT_MS = 3_600_000;
const STATES = { ready: ['ok', 'ready'], missing: ['warn', 'needs setup'], disabled: ['neutral', 'disabled'] } as const;

interface Props {
  /** Undefined for the default agent. */
  agentId: string | undefined;
  skill: SkillRow;
  onChanged: () => void;
}

/** One skill: what it does, what it lacks, and what can be done about it. */
export function SkillItem({ agentId, skill, onChanged }: Props): JSX.Element {
  const [busy, setBusy] = useState('');
  const [error, setError] = useState<unknown>(null);
  const [tone, word] = STATES[skillState(skill)];
  const act = (name: string, work: () => Promise<string>): void => {
    setBusy(name);
    setError(null);
    work()
      .then((text) => {
        showToast({ tone: 'ok', text });
        onChanged();
      }, setError)
      .finally(() => setBusy(''));
  };
  const toggle = (): void =>
    act('toggle', async () => {
      await call('skills.update', { skillKey: skill.skillKey, enabled: skill.disabled });
      return `${skill.name} is ${skill.disabled ? 'enabled' : 'disabled'}.`;
    });
  const install = (installId: string): void =>
    act(installId, async () => {
      const wanted = { name: skill.name, installId, ...(agentId ? { agentId } : {}) };
      return (await call('skills.install', wanted, INSTALL_TIMEOUT_MS)).message;
    });
  const canInstall = lacksPrograms(skill) && skill.install.length > 0;
  return (
    <li class="skill-item">
      <div class="skill-head">
        <strong>{oneLine(skill.name, 60)}</strong>
        <Badge tone={tone}>{word}</Badge>
        <span class="tiny soft">{oneLine(skill.source.replace('openclaw-', ''), 40)}</span>
        {may('admin') && (
          <span class="spread">
            <Button small isBusy={busy === 'toggle'} label={`${skill.disabled ? 'Enable' : 'Disable'} ${skill.name}`} onClick={toggle}>
              {skill.disabled ? 'Enable' : 'Disable'}
            </Button>
          </span>
        )}
      </div>
      <p class="small">{escapeInvisible(skill.description)}</p>
      {skill.reasons.length > 0 && (
        <ul class="skill-gates" aria-label={`What ${skill.name} lacks`}>
          {skill.reasons.map((reason) => (
            <li key={reason.gate + reason.message}>
              <span class="mono tiny">{oneLine(reason.gate, 20)}</span> {escapeInvisible(reason.message)}
              {reason.fix && <span class="soft">. {escapeInvisible(reason.fix)}</span>}
            </li>
          ))}
        </ul>
      )}
      {may('admin') && canInstall && (
        <div class="row">
          {skill.install.map((way) => (
            <Button key={way.id} small icon="download" isBusy={busy === way.id} onClick={() => install(way.id)}>
              {oneLine(way.label, 80)}
            </Button>
          ))}
          {busy && busy !== 'toggle' && <span class="soft small">It waits for your approval, then it installs.</span>}
        </div>
      )}
      {may('admin') && skill.primaryEnv && <SkillKey skill={skill} onChanged={onChanged} />}
      {error !== null && <ErrorState error={error} />}
      <SkillDetails skill={skill} />
    </li>
  );
}

function SkillDetails({ skill }: { skill: SkillRow }): JSX.Element {
  return (
    <details class="skill-more">
      <summary>Details</summary>
      <KeyValues
        rows={[
          ['File', oneLine(skill.filePath ?? '', 300)],
          ['Homepage', oneLine(skill.homepage ?? '', 200)],
          ['Requires', requirements(skill)],
          ['Tools', oneLine(skill.allowedTools?.join(', ') ?? '', 200)],
          ['Actions', oneLine(skill.actions?.map((action) => action.tool).join(', ') ?? '', 300)],
        ]}
      />
    </details>
  );
}

function lacksPrograms({ missing }: SkillRow): boolean {
  return (missing.bins?.length ?? 0) + (missing.anyBins?.length ?? 0) > 0;
}

function requirements(skill: SkillRow): string {
  const parts = Object.entries(skill.requirements).filter(([, values]) => values.length);
  return oneLine(parts.map(([kind, values]) => `${kind}: ${values.join(', ')}`).join('; ') || 'nothing', 400);
}
