import type { JSX } from 'preact';
import { useContext, useState } from 'preact/hooks';
import { Field } from '../../components/Field';
import { KeyText } from '../../components/KeyText';
import { oneLine } from '../../markdown/text';
import { getAt, type Path } from './configTree';
import { DraftContext } from './draft';
import type { Schema } from './schema';
import { TypedInput } from './TypedInput';

interface Props {
  schema: Schema;
  path: Path;
  label: string;
}

/** A setting that may have several forms, edited as JSON; a plain word is taken as text. */
export function JsonField({ schema, path, label }: Props): JSX.Element {
  const { tree, onChange } = useContext(DraftContext);
  const [problem, setProblem] = useState('');
  const value = getAt(tree, path);
  const shown = value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  const change = (text: string): void => {
    const parsed = parseText(text);
    setProblem(parsed ? '' : 'This is not valid JSON. It is not saved.');
    if (parsed) onChange(path, parsed.value);
  };
  return (
    <div class="setting">
      <Field
        label={oneLine(label, 80)}
        hint={<KeyText text={`${oneLine(schema.description ?? formsOf(schema), 300)} Text, or JSON.`.trim()} />}
        {...(problem ? { error: problem } : {})}
      >
        {(ids) => (
          <TypedInput
            ids={ids}
            isMono
            rows={Math.min(12, Math.max(1, shown.split('\n').length))}
            placeholder="Not set"
            text={shown}
            onText={change}
          />
        )}
      </Field>
    </div>
  );
}

/** Return the description of the forms that a setting may have; the first that has one. */
function formsOf(schema: Schema): string {
  return schema.anyOf?.find(({ description }) => description)?.description ?? '';
}

function parseText(text: string): { value: unknown } | null {
  if (!text.trim()) return { value: undefined };
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return /^\s*[[{"]/.test(text) ? null : { value: text };
  }
}
