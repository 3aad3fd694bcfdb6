import type { JSX } from 'preact';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { WizardStep } from '../../protocol/agent-results';

interface Props {
  step: WizardStep;
  value: unknown;
  onChange: (value: unknown) => void;
}

/** The answers that a step offers: one of them, or several. */
export function StepOptions({ step, value, onChange }: Props): JSX.Element {
  const isMany = step.type === 'multiselect';
  const chosen = isMany && Array.isArray(value) ? (value as string[]) : [];
  const toggle = (option: string): void =>
    onChange(chosen.includes(option) ? chosen.filter((one) => one !== option) : [...chosen, option]);
  return (
    <fieldset class="setup-options">
      <legend class="visually-hidden">{escapeInvisible(step.title ?? 'Answers')}</legend>
      {step.options?.map((option) => (
        <label key={option.value} class="setup-option">
          <input
            type={isMany ? 'checkbox' : 'radio'}
            name={step.id}
            required={!isMany}
            checked={isMany ? chosen.includes(option.value) : value === option.value}
            onChange={() => (isMany ? toggle(option.value) : onChange(option.value))}
          />
          <span>
            {oneLine(option.label, 120)}
            {option.hint && <span class="tiny soft setup-hint">{oneLine(option.hint, 200)}</span>}
          </span>
        </label>
      ))}
    </fieldset>
  );
}
