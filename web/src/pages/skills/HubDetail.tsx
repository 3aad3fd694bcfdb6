import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge, type Tone } from '../../components/Badge';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { KeyValues } from '../../components/KeyValues';
import { Loading } from '../../components/Loading';
import { call } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { SkillFinding } from '../../protocol/skill-results';
import { formatBytes } from '../../state/format';
import { showToast } from '../../state/toasts';

const TONES: Record<SkillFinding['severity'], Tone> = { block: 'bad', warn: 'warn', info: 'info' };
const WORDS: Record<SkillFinding['severity'], string> = { block: 'blocks', warn: 'warning', info: 'note' };

interface Props {
  /** The agent that gets the skill; undefined for the default agent. */
  agentId: string | undefined;
  slug: string;
  onInstalled: () => void;
}

/** What a skill asks for and what the check of it found; installs it as it was shown. */
export function HubDetail({ agentId, slug, onInstalled }: Props): JSX.Element {
  const { data, error, reload } = useRequest('skills.detail', { slug });
  const [isAccepted, setAccepted] = useState(false);
  const [isManaged, setManaged] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [isDone, setDone] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  if (error !== null) return <ErrorState error={error} onRetry={reload} />;
  if (!data) return <Loading label="Downloading and checking" />;
  const isBlocked = data.findings.some((finding) => finding.severity === 'block');
  const hasWarnings = data.findings.some((finding) => finding.severity === 'warn');
  const install = (): void => {
    setBusy(true);
    setFailure(null);
    const { version, fingerprint } = data;
    const place = { managed: isManaged, ...(agentId && !isManaged ? { agentId } : {}) };
    call('skills.add', { slug, version, fingerprint, ...place, acceptWarnings: isAccepted })
      .then((done) => {
        showToast({ tone: 'ok', text: `${done.slug} ${done.version} is installed.` });
        setDone(true);
        onInstalled();
      }, setFailure)
      .finally(() => setBusy(false));
  };
  return (
    <div class="stack">
      <div>
        <strong>{oneLine(data.name || data.slug, 60)}</strong>{' '}
        <span class="mono tiny soft">
          {oneLine(`${data.version} from ${data.registry}`, 120)}
        </span>
        <p class="small">{escapeInvisible(data.description)}</p>
      </div>
      <section aria-label="What it asks for">
        <h3 class="skill-title">It asks for</h3>
        <KeyValues rows={Object.entries(data.asksFor).map(([name, value]) => [name, escapeInvisible(value)] as const)} />
        {!Object.keys(data.asksFor).length && <p class="soft small">Nothing.</p>}
      </section>
      <section aria-label="Findings of the check">
        <h3 class="skill-title">The check found</h3>
        {!data.findings.length && <p class="soft small">Nothing. A skill without findings can still be bad: read it.</p>}
        <ul class="skill-gates">
          {data.findings.map((finding, at) => (
            <li key={at}>
              <Badge tone={TONES[finding.severity]}>{WORDS[finding.severity]}</Badge>{' '}
              <span class="mono tiny">{oneLine(`${finding.file}${finding.line ? `:${finding.line}` : ''}`, 120)}</span>{' '}
              {escapeInvisible(finding.message)}
              {finding.excerpt && <pre class="skill-excerpt">{escapeInvisible(finding.excerpt)}</pre>}
            </li>
          ))}
        </ul>
      </section>
      <details class="skill-more">
        <summary>{data.files.length} files</summary>
        <KeyValues rows={data.files.map((file) => [oneLine(file.path, 120), formatBytes(file.size)] as const)} />
      </details>
      {isBlocked && <p class="field-error">The check blocks this skill: it is not installed from here.</p>}
      {!isBlocked && hasWarnings && (
        <label class="skill-check">
          <input type="checkbox" checked={isAccepted} onChange={(event) => setAccepted(event.currentTarget.checked)} />I have
          read the warnings
        </label>
      )}
      <label class="skill-check">
        <input type="checkbox" checked={isManaged} onChange={(event) => setManaged(event.currentTarget.checked)} />
        For all agents
      </label>
      {failure !== null && <ErrorState error={failure} />}
      <div>
        <Button kind="primary" icon="download" isBusy={isBusy} disabled={isBlocked || isDone || (hasWarnings && !isAccepted)} onClick={install}>
          {isDone ? 'Installed' : 'Install skill'}
        </Button>
      </div>
    </div>
  );
}
