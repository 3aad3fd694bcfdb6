import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { call } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible } from '../../markdown/text';
import type { FilesPreview } from '../../protocol/agent-results';
import { formatAgo, formatCount } from '../../state/format';
import { showToast } from '../../state/toasts';
import { findFileDraft, storeFileDraft } from './fileDrafts';

const DEBOUNCE_MS = 400;

interface Props {
  agentId: string;
  name: string;
  onSaved: () => void;
}

/** Edit one file; what the prompt keeps of it is shown while it is typed. */
export function FileEditor({ agentId, name, onSaved }: Props): JSX.Element {
  const { data, error, reload } = useRequest('agents.files.get', { agentId, name });
  const draft = findFileDraft(agentId, name);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const [isChanged, setChanged] = useState(false);
  const stored = data?.file.content ?? '';
  const text = draft ?? stored;
  const isDirty = draft !== null && draft !== stored;
  const preview = usePreview(agentId, name, data ? text : null);
  const save = async (force: boolean): Promise<void> => {
    setBusy(true);
    setFailure(null);
    try {
      // The agent writes its files too: what it wrote since is not replaced without a question.
      const now = await call('agents.files.get', { agentId, name });
      if (!force && now.file.updatedAtMs !== data?.file.updatedAtMs && now.file.content !== stored) {
        setChanged(true);
        return;
      }
      await call('agents.files.set', { agentId, name, content: text });
      storeFileDraft(agentId, name, null);
      setChanged(false);
      showToast({ tone: 'ok', text: `${name} is saved. The next message uses it.` });
      reload();
      onSaved();
    } catch (reason) {
      setFailure(reason);
    } finally {
      setBusy(false);
    }
  };
  const revert = (): void => {
    storeFileDraft(agentId, name, null);
    setChanged(false);
    reload();
  };
  if (!data) return error === null ? <Loading /> : <ErrorState error={error} onRetry={reload} />;
  return (
    <Card
      title={<span class="mono">{name}</span>}
      aside={isDirty ? <Badge tone="warn">not saved</Badge> : data.file.updatedAtMs && <span>{formatAgo(data.file.updatedAtMs)}</span>}
    >
      <div class="stack">
        <Field label={`Text of ${name}`} hint={data.file.missing ? 'The file does not exist yet: it is made when you save.' : undefined}>
          {(ids) => (
            <textarea
              class="input mono file-text"
              rows={18}
              spellcheck={false}
              {...ids}
              value={text}
              onInput={(event) => storeFileDraft(agentId, name, event.currentTarget.value === stored ? null : event.currentTarget.value)}
            />
          )}
        </Field>
        {isChanged && (
          <div class="file-conflict" role="alert">
            <p>{name} has changed since you opened it.</p>
            <Button small onClick={() => void save(true)}>
              Replace it with mine
            </Button>
            <Button small onClick={revert}>
              Load it again
            </Button>
          </div>
        )}
        {failure !== null && <ErrorState error={failure} />}
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        <div class="row">
          <Button kind="primary" isBusy={isBusy} disabled={!isDirty} onClick={() => void save(false)}>
            Save {name}
          </Button>
          {isDirty && <Button onClick={revert}>Discard changes</Button>}
        </div>
        <Kept name={name} preview={preview} />
      </div>
    </Card>
  );
}

/** Return what the prompt would keep of a text, a moment after it was typed. */
function usePreview(agentId: string, name: string, text: string | null): FilesPreview | null {
  const [preview, setPreview] = useState<FilesPreview | null>(null);
  useEffect(() => {
    if (text === null) return undefined;
    let isCurrent = true;
    const timer = setTimeout(() => {
      call('agents.files.preview', { agentId, name, content: text }).then(
        (found) => isCurrent && setPreview(found),
        () => isCurrent && setPreview(null),
      );
    }, DEBOUNCE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [agentId, name, text]);
  return preview;
}

function Kept({ name, preview }: { name: string; preview: FilesPreview | null }): JSX.Element | null {
  if (!preview) return null;
  const row = preview.files.find((file) => file.name === name);
  if (!row) return <p class="soft small">The prompt leaves this file out: it is empty, or the files before it take all the room.</p>;
  const figures = `${formatCount(row.keptChars)} of ${formatCount(row.rawChars)} characters`;
  if (!row.truncated) return <p class="soft small">The prompt has all of it: {figures}.</p>;
  return (
    <details class="file-kept" open>
      <summary>
        <Badge tone="warn">cut</Badge> The prompt keeps {figures}. A file may have {formatCount(preview.maxFileChars)}.
      </summary>
      <pre tabIndex={0} role="region" aria-label={`What the prompt keeps of ${name}`}>
        {escapeInvisible(preview.kept ?? '')}
      </pre>
    </details>
  );
}
