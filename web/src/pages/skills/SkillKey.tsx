import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { call } from '../../gateway/gateway';
import { oneLine } from '../../markdown/text';
import type { SkillRow } from '../../protocol/skill-results';
import { showToast } from '../../state/toasts';

/** Enter the key that a skill uses. It is sent to the gateway and never shown again. */
export function SkillKey({ skill, onChanged }: { skill: SkillRow; onChanged: () => void }): JSX.Element {
  const [key, setKey] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const save = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    call('skills.update', { skillKey: skill.skillKey, apiKey: key })
      .then(() => {
        setKey('');
        showToast({ tone: 'ok', text: `The key of ${skill.name} is saved.` });
        onChanged();
      }, setError)
      .finally(() => setBusy(false));
  };
  return (
    <form class="skill-key" onSubmit={save}>
      <Field label={`Key of ${oneLine(skill.name, 60)} (${oneLine(skill.primaryEnv ?? '', 60)})`}>
        {(ids) => (
          <input
            class="input mono"
            type="password"
            autocomplete="off"
            {...ids}
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        )}
      </Field>
      <Button type="submit" icon="key" isBusy={isBusy} disabled={!key.trim()}>
        Save key
      </Button>
      {error !== null && <ErrorState error={error} />}
    </form>
  );
}
