import type { JSX, TargetedInputEvent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { escapeInvisible } from '../../markdown/text';
import type { WizardStep } from '../../protocol/agent-results';
import { StepOptions } from './StepOptions';

interface Props {
  step: WizardStep;
  isBusy: boolean;
  onAnswer: (stepId: string, value: unknown) => void;
  onStop: () => void;
}

/** One question of the setup. The focus moves to its title, so that it is read out. */
export function StepForm({ step, isBusy, onAnswer, onStop }: Props): JSX.Element {
  const [value, setValue] = useState<unknown>(step.initialValue ?? (step.type === 'multiselect' ? [] : ''));
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => title.current?.focus(), []);
  const submit = (event: Event): void => {
    event.preventDefault();
    onAnswer(step.id, step.type === 'note' || step.type === 'action' ? null : value);
  };
  const isWaiting = step.type === 'progress';
  return (
    <Card>
      <form class="stack" onSubmit={submit}>
        <h2 ref={title} tabIndex={-1} class="setup-title">
          {escapeInvisible(step.title ?? (isWaiting ? 'One moment' : 'Set up'))}
        </h2>
        {step.message && <p class="setup-text">{escapeInvisible(step.message)}</p>}
        {isWaiting && <Loading label="Working" />}
        <StepControl step={step} value={value} onChange={setValue} />
        <div class="row">
          {step.type === 'confirm' ? (
            <>
              <Button kind="primary" isBusy={isBusy} onClick={() => onAnswer(step.id, true)}>
                Yes
              </Button>
              <Button isBusy={isBusy} onClick={() => onAnswer(step.id, false)}>
                No
              </Button>
            </>
          ) : (
            !isWaiting && (
              <Button kind="primary" type="submit" isBusy={isBusy}>
                Continue
              </Button>
            )
          )}
          <span class="spread">
            <Button kind="quiet" onClick={onStop}>
              Stop the setup
            </Button>
          </span>
        </div>
      </form>
    </Card>
  );
}

interface ControlProps {
  step: WizardStep;
  value: unknown;
  onChange: (value: unknown) => void;
}

function StepControl({ step, value, onChange }: ControlProps): JSX.Element | null {
  if (step.type === 'select' || step.type === 'multiselect') return <StepOptions step={step} value={value} onChange={onChange} />;
  if (step.type !== 'text') return null;
  return (
    <Field label={step.sensitive ? 'Your answer (hidden)' : 'Your answer'}>
      {(ids) => {
        const shared = {
          ...ids,
          class: 'input',
          autocomplete: 'off',
          spellcheck: false,
          placeholder: step.placeholder,
          value: typeof value === 'string' ? value : '',
          onInput: (event: TargetedInputEvent<HTMLInputElement>) => onChange(event.currentTarget.value),
        } as const;
        return step.sensitive ? <input type="password" {...shared} /> : <input type="text" {...shared} />;
      }}
    </Field>
  );
}
