import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { route } from '../../app/router';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { Page } from '../../components/Page';
import { Tabs } from '../../components/Tabs';
import { may } from '../../gateway/gateway';
import { escapeInvisible } from '../../markdown/text';
import type { ConfigCheck, ConfigView } from '../../protocol/operation-results';
import { ConfigForm } from './ConfigForm';
import { formatTree } from './configTree';
import { IssueList } from './IssueList';
import { RawEditor } from './RawEditor';
import { ReviewDialog } from './ReviewDialog';
import { maskSecrets, type Schema } from './schema';
import { keptMode, useConfigDraft, type Mode } from './useConfigDraft';

interface Props {
  view: ConfigView;
  schema: Schema;
  hints: Readonly<Record<string, { sensitive?: boolean }>>;
  onReload: () => void;
}

const TABS: readonly { id: Mode; label: string }[] = [
  { id: 'form', label: 'Form' },
  { id: 'raw', label: 'JSON5' },
];

/** Edit the config, review the change, apply it. */
export function ConfigEditor({ view, schema, hints, onReload }: Props): JSX.Element {
  const [mode, setMode] = useState<Mode>(keptMode);
  const [search, setSearch] = useState(route.value.query.find ?? '');
  const [check, setCheck] = useState<ConfigCheck | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const draft = useConfigDraft(view, mode, onReload);
  const review = (): void => {
    setBusy(true);
    setError(null);
    draft
      .validate()
      .then((found) => {
        if (!found.isStale) setCheck(found);
      }, setError)
      .finally(() => setBusy(false));
  };
  const select = (next: Mode): void => {
    const isCarried = draft.carryTo(next);
    setError(isCarried ? null : new Error('The text has to be plain JSON for the form. Review or discard it first.'));
    if (isCarried) setMode(next);
  };
  const before = mode === 'form' ? formatTree(view.parsed) : (view.raw ?? '');
  const after = mode === 'form' ? formatTree(maskSecrets(draft.tree, hints)) : draft.text;
  return (
    <Page
      title="Config"
      aside={
        <>
          {draft.isChanged && (
            <Button small kind="quiet" onClick={draft.discard}>
              Discard
            </Button>
          )}
          <Button kind="primary" small isBusy={isBusy} disabled={!draft.isChanged || !may('admin')} onClick={review}>
            Review changes
          </Button>
        </>
      }
    >
      <div class="stack column config">
        <p class="soft tiny mono clip config-path">{escapeInvisible(view.path)}</p>
        {draft.isMoved && (
          <p class="config-notice" role="alert">
            The file was changed elsewhere. Your changes are kept: review them against the new file before you apply them.
          </p>
        )}
        {error !== null && <ErrorState error={error} />}
        {view.issues.length > 0 && <IssueList issues={view.issues} />}
        {view.warnings.length > 0 && <IssueList issues={view.warnings} isWarning />}
        <Tabs label="How to edit" tabs={TABS} selected={mode} onSelect={select} />
        <div role="tabpanel" aria-label={mode === 'form' ? 'Form' : 'JSON5'} class="stack">
          {mode === 'form' ? (
            <>
              <input
                class="input"
                type="search"
                aria-label="Search settings"
                placeholder="Search settings, such as port or spend"
                value={search}
                onInput={(event) => setSearch(event.currentTarget.value)}
              />
              <ConfigForm schema={schema} hints={hints} tree={draft.tree} search={search} onChange={draft.onChange} />
            </>
          ) : (
            <RawEditor text={draft.text} onChange={draft.onText} isInvalid={check?.ok === false} />
          )}
          <p class="soft tiny">
            Secrets are hidden. A hidden value stays as it is stored, unless you replace it.
            {mode === 'raw' && ' Comments are not shown; those in the file stay where their settings stay.'}
          </p>
        </div>
        {check && (
          <ReviewDialog check={check} before={before} after={after} onApply={draft.apply} onClose={() => setCheck(null)} />
        )}
      </div>
    </Page>
  );
}
