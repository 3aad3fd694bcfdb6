import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { EmptyState } from '../../components/EmptyState';
import { getAt, type Path, type Tree } from './configTree';
import { DraftContext } from './draft';
import { listKeys, searchKeys, type Schema } from './schema';
import { SettingNode } from './SettingNode';

interface Props {
  schema: Schema;
  hints: Readonly<Record<string, { sensitive?: boolean }>>;
  tree: Tree;
  search: string;
  onChange: (path: Path, value: unknown) => void;
}

const MAX_FOUND = 40;
const HIDDEN = new Set(['$schema', 'meta', 'wizard']);

/** The settings as a form. Sections that are set come first; each is rendered when it is opened. */
export function ConfigForm({ schema, hints, tree, search, onChange }: Props): JSX.Element {
  const draft = useMemo(() => ({ tree, hints, onChange }), [tree, hints, onChange]);
  const keys = useMemo(() => listKeys(schema), [schema]);
  const found = useMemo(() => searchKeys(keys, search, MAX_FOUND), [keys, search]);
  const sections = Object.entries(schema.properties ?? {}).filter(([name]) => !HIDDEN.has(name));
  return (
    <DraftContext.Provider value={draft}>
      {search.trim() ? (
        <div class="setting-found">
          {found.map((key) => (
            <SettingNode key={key.name} schema={key.schema} path={key.path} label={key.name} />
          ))}
          {!found.length && (
            <EmptyState icon="search" title="No setting has these words">
              Search for a part of its key, such as “port” or “spend”.
            </EmptyState>
          )}
          {found.length === MAX_FOUND && <p class="soft small">More settings match: type more of the key.</p>}
        </div>
      ) : (
        <div>
          {[...sections.filter(([name]) => isSet(tree, name)), ...sections.filter(([name]) => !isSet(tree, name))].map(
            ([name, inner]) => (
              <SettingNode key={name} schema={inner} path={[name]} />
            ),
          )}
        </div>
      )}
    </DraftContext.Provider>
  );
}

function isSet(tree: Tree, name: string): boolean {
  return getAt(tree, [name]) !== undefined;
}
