import type { JSX } from 'preact';
import { useContext, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { oneLine } from '../../markdown/text';
import { formatPath, getAt, isObject, type Path } from './configTree';
import { DraftContext } from './draft';
import { controlOf, type Schema } from './schema';
import { SettingNode } from './SettingNode';

interface Props {
  schema: Schema;
  path: Path;
}

const MAX_SHOWN = 100;

/** The entries of a map or a list, with buttons to add and remove one. */
export function SettingItems({ schema, path }: Props): JSX.Element | null {
  const { tree, onChange } = useContext(DraftContext);
  const [name, setName] = useState('');
  const value = getAt(tree, path);
  const inner = schema.items ?? schema.additionalProperties;
  if (!isObject(inner) || !Object.keys(inner).length) return null;
  const isList = schema.items !== undefined;
  const listed: Path = Array.isArray(value)
    ? value.map((_, at) => at)
    : isObject(value)
      ? Object.keys(value).filter((key) => !Object.hasOwn(schema.properties ?? {}, key))
      : [];
  const add = (): void => {
    const key = isList ? listed.length : name.trim();
    if (key === '' || getAt(value, [key]) !== undefined) return;
    onChange([...path, key], emptyValue(inner));
    setName('');
  };
  return (
    <>
      {listed.slice(0, MAX_SHOWN).map((step) => (
        <div class="setting-item" key={step}>
          <SettingNode schema={inner} path={[...path, step]} label={titleOf(value, step)} />
          <Button
            kind="quiet"
            small
            icon="trash"
            label={`Remove ${formatPath([...path, step])}`}
            onClick={() => onChange([...path, step], undefined)}
          />
        </div>
      ))}
      {listed.length > MAX_SHOWN && <p class="soft small">{listed.length - MAX_SHOWN} more: edit them as JSON5.</p>}
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          add();
        }}
      >
        {!isList && (
          <input
            class="input setting-name"
            aria-label={`New name in ${formatPath(path)}`}
            placeholder="Name"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        )}
        <Button type="submit" small icon="plus">
          Add
        </Button>
      </form>
    </>
  );
}

function titleOf(value: unknown, step: string | number): string {
  const id = typeof step === 'number' ? (getAt(value, [step, 'id']) ?? getAt(value, [step, 'name'])) : step;
  return oneLine(typeof id === 'string' ? id : `Entry ${Number(step) + 1}`, 80);
}

function emptyValue(schema: Schema): unknown {
  const control = controlOf(schema);
  if (control === 'object' || control === 'map') return {};
  if (control === 'list' || control === 'texts') return [];
  if (control === 'boolean') return false;
  return control === 'number' ? 0 : '';
}
