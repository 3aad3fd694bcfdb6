import type { JSX } from 'preact';
import { useContext } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Field, type FieldIds } from '../../components/Field';
import { KeyText } from '../../components/KeyText';
import { oneLine } from '../../markdown/text';
import { formatPath, getAt, REDACTED, type Path } from './configTree';
import { DraftContext } from './draft';
import { controlOf, describeBounds, isSensitive, unwrap, type Schema } from './schema';
import { TypedInput } from './TypedInput';

interface Props {
  schema: Schema;
  path: Path;
  label: string;
}

/** A setting of one value: text, number, choice, switch, or a list of texts. */
export function ScalarField({ schema, path, label }: Props): JSX.Element {
  const { tree, hints, onChange } = useContext(DraftContext);
  const value = getAt(tree, path);
  const isSet = value !== undefined;
  const isSecret = isSensitive(hints, path) || value === REDACTED;
  const about = [oneLine(unwrap(schema).description ?? '', 300), describeBounds(schema)].filter(Boolean).join(' ');
  return (
    <div class="setting">
      <Field label={oneLine(label, 80)} hint={<KeyText text={about} />}>
        {(ids) => (
          <div class="setting-control">
            <Control ids={ids} schema={unwrap(schema)} value={value} isSecret={isSecret} onChange={(next) => onChange(path, next)} />
            {isSet && (
              <Button kind="quiet" small icon="close" label={`Unset ${formatPath(path)}`} onClick={() => onChange(path, undefined)} />
            )}
          </div>
        )}
      </Field>
    </div>
  );
}

interface ControlProps {
  ids: FieldIds;
  schema: Schema;
  value: unknown;
  isSecret: boolean;
  onChange: (value: unknown) => void;
}

function Control({ ids, schema, value, isSecret, onChange }: ControlProps): JSX.Element {
  const kind = controlOf(schema);
  if (kind === 'choice' || kind === 'boolean') {
    const choices = kind === 'boolean' ? [true, false] : (schema.enum ?? []);
    const at = choices.findIndex((choice) => choice === value);
    return (
      <select
        class="input"
        {...ids}
        value={String(at)}
        onChange={(event) => onChange(choices[Number(event.currentTarget.value)])}
      >
        <option value="-1">{value === undefined || at >= 0 ? 'Not set' : `${JSON.stringify(value)} (invalid)`}</option>
        {choices.map((choice, index) => (
          <option key={index} value={String(index)}>
            {choice === true ? 'On' : choice === false ? 'Off' : String(choice)}
          </option>
        ))}
      </select>
    );
  }
  if (kind === 'texts')
    return (
      <TypedInput
        ids={ids}
        rows={3}
        placeholder="One entry a line"
        text={Array.isArray(value) ? value.map(String).join('\n') : ''}
        onText={(text) => {
          const lines = text.split('\n').filter((line) => line.trim());
          onChange(lines.length || value !== undefined ? lines : undefined);
        }}
      />
    );
  const isHidden = value === REDACTED;
  const shown = isHidden || value === undefined || value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value);
  return (
    <TypedInput
      ids={ids}
      isSecret={isSecret}
      inputMode={kind === 'number' ? 'decimal' : 'text'}
      placeholder={isHidden ? 'Stored; type to replace it' : 'Not set'}
      text={shown}
      onText={(text) => onChange(parseInput(text, kind))}
    />
  );
}

/** Return the value of a typed text; an empty one is no value. */
function parseInput(text: string, kind: string): unknown {
  if (text === '') return undefined;
  const number = Number(text);
  return kind === 'number' && Number.isFinite(number) ? number : text;
}
