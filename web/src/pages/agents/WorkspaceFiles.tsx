import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Meter } from '../../components/Meter';
import { useRequest } from '../../gateway/useRequest';
import { formatCount } from '../../state/format';
import { findFileDraft } from './fileDrafts';
import { FileEditor } from './FileEditor';

/** The Markdown files of an agent, and how much of each its prompt keeps. */
export function WorkspaceFiles({ agentId }: { agentId: string }): JSX.Element {
  const files = useRequest('agents.files.list', { agentId });
  const preview = useRequest('agents.files.preview', { agentId });
  const [open, setOpen] = useState('AGENTS.md');
  const total = preview.data?.files.reduce((sum, file) => sum + file.keptChars, 0) ?? 0;
  const reload = (): void => {
    files.reload();
    preview.reload();
  };
  if (!files.data) return files.error === null ? <Loading /> : <ErrorState error={files.error} onRetry={files.reload} />;
  return (
    <div class="file-layout">
      <Card title="Files">
        <ul class="file-list" aria-label="Files">
          {files.data.files.map((file) => {
            const share = preview.data?.files.find((one) => one.name === file.name);
            return (
              <li key={file.name}>
                <button type="button" class="file-entry" aria-pressed={file.name === open} onClick={() => setOpen(file.name)}>
                  <span class="mono clip">{file.name}</span>
                  {findFileDraft(agentId, file.name) !== null && <Badge tone="warn">not saved</Badge>}
                  {file.missing && <Badge>missing</Badge>}
                  {share?.truncated && <Badge tone="warn">cut</Badge>}
                  {share && !share.missing && !share.truncated && findFileDraft(agentId, file.name) === null && (
                    <span class="tiny soft">{formatCount(share.keptChars)}</span>
                  )}
                </button>
              </li>
            );
          })}
        </ul>
        {preview.data && (
          <div class="file-total">
            <Meter value={total / preview.data.maxTotalChars} label="Characters of all files in the prompt" />
            <p class="tiny soft">
              {formatCount(total)} of {formatCount(preview.data.maxTotalChars)} characters in the prompt
            </p>
          </div>
        )}
      </Card>
      <FileEditor key={`${agentId}:${open}`} agentId={agentId} name={open} onSaved={reload} />
    </div>
  );
}
