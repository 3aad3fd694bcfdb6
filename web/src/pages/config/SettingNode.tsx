import type { JSX } from 'preact';
import { useContext, useState } from 'preact/hooks';
import { KeyText } from '../../components/KeyText';
import { oneLine } from '../../markdown/text';
import { getAt, isObject, type Path } from './configTree';
import { DraftContext } from './draft';
import { JsonField } from './JsonField';
import { ScalarField } from './ScalarField';
import { controlOf, unwrap, type Schema } from './schema';
import { SettingItems } from './SettingItems';

interface Props {
  schema: Schema;
  path: Path;
  /** The name that is shown; without one, the last step of the path. */
  label?: string;
}

/** One setting: a field, or a group that is rendered when it is opened. */
export function SettingNode({ schema, path, label }: Props): JSX.Element {
  const name = label ?? String(path.at(-1) ?? '');
  switch (controlOf(schema)) {
    case 'object':
    case 'map':
    case 'list':
      return <SettingGroup schema={unwrap(schema)} path={path} name={name} />;
    case 'json':
      return <JsonField schema={schema} path={path} label={name} />;
    default:
      return <ScalarField schema={schema} path={path} label={name} />;
  }
}

function SettingGroup({ schema, path, name }: { schema: Schema; path: Path; name: string }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const value = getAt(useContext(DraftContext).tree, path);
  const count = isObject(value) ? Object.keys(value).length : Array.isArray(value) ? value.length : 0;
  return (
    <details class="setting-group" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span class="mono">{oneLine(name, 80)}</span>
        {count > 0 && <span class="setting-count">{count} set</span>}
        {schema.description && <span class="setting-about"><KeyText text={firstParagraph(schema.description)} /></span>}
      </summary>
      {isOpen && (
        <div class="setting-inner">
          {Object.entries(schema.properties ?? {}).map(([key, inner]) => (
            <SettingNode key={key} schema={inner} path={[...path, key]} />
          ))}
          <SettingItems schema={schema} path={path} />
        </div>
      )}
    </details>
  );
}

function firstParagraph(text: string): string {
  return oneLine(text.split('\n\n')[0] ?? text, 200);
}
