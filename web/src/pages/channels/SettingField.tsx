import type { JSX, TargetedInputEvent } from 'preact';
import { Field, type FieldIds } from '../../components/Field';
import { KeyText } from '../../components/KeyText';
import { oneLine } from '../../markdown/text';
import type { ChannelField } from './fields';

interface Props {
  field: ChannelField;
  value: string;
  onChange: (text: string) => void;
}

/** One setting of an account. */
export function SettingField({ field, value, onChange }: Props): JSX.Element {
  const hint = field.hint || (field.isRequired ? undefined : 'Optional');
  const fallback = field.fallback && `Default: ${oneLine(field.fallback, 60)}`;
  return (
    <Field label={field.label} hint={hint === undefined ? undefined : <KeyText text={hint} />}>
      {(ids) =>
        field.kind === 'select' || field.kind === 'boolean' ? (
          <select class="input" {...ids} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
            <option value="">{fallback || 'Default'}</option>
            {(field.kind === 'boolean' ? ['true', 'false'] : field.options).map((option) => (
              <option key={option} value={option}>
                {field.kind === 'boolean' ? (option === 'true' ? 'Yes' : 'No') : oneLine(option, 60)}
              </option>
            ))}
          </select>
        ) : (
          <SettingInput field={field} value={value} onChange={onChange} ids={ids} placeholder={fallback} />
        )
      }
    </Field>
  );
}

function SettingInput({ field, value, onChange, ids, placeholder }: Props & { ids: FieldIds; placeholder: string }): JSX.Element {
  const shared = {
    ...ids,
    class: 'input mono',
    autocomplete: 'off',
    spellcheck: false,
    required: field.isRequired,
    placeholder,
    value,
    onInput: (event: TargetedInputEvent<HTMLInputElement>) => onChange(event.currentTarget.value),
  } as const;
  if (field.kind === 'secret') return <input type="password" {...shared} />;
  return field.kind === 'number' ? <input type="number" {...shared} /> : <input type="text" {...shared} />;
}
