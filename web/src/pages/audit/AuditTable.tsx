import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { CopyButton } from '../../components/CopyButton';
import { Dialog } from '../../components/Dialog';
import { JsonView } from '../../components/JsonView';
import { KeyValues } from '../../components/KeyValues';
import { Table } from '../../components/Table';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { AuditRow } from '../../protocol/operation-results';
import { formatDateTime } from '../../state/format';
import { describeRow, toneOf } from './audit';

/** Rows of the log; one opens to everything that it has. */
export function AuditTable({ rows }: { rows: readonly AuditRow[] }): JSX.Element {
  const [opened, setOpened] = useState<AuditRow | null>(null);
  return (
    <>
      <Table<AuditRow>
        label="Audit log"
        columns={[
          { title: 'No.', render: ({ seq }) => <span class="mono">{seq}</span>, isMinor: true, isShort: true },
          { title: 'Time', render: ({ atMs }) => formatDateTime(atMs), isMinor: true, isShort: true },
          { title: 'Kind', render: (row) => <Badge tone={toneOf(row)}>{row.kind}</Badge> },
          {
            title: 'About',
            render: (row) => <span class="mono">{oneLine(row.tool || row.session || row.agent, 80)}</span>,
            isMinor: true,
          },
          { title: 'What', render: (row) => <span class="audit-what">{oneLine(describeRow(row), 220)}</span> },
          {
            title: 'Open',
            render: (row) => (
              <Button kind="quiet" small icon="eye" label={`Open row ${row.seq}`} onClick={() => setOpened(row)} />
            ),
            align: 'end',
          },
        ]}
        rows={rows}
        getKey={({ seq }) => String(seq)}
      />
      {opened && (
        <Dialog
          title={`Row ${opened.seq}`}
          onClose={() => setOpened(null)}
          actions={<CopyButton label="Copy as JSON" getText={() => JSON.stringify(opened, null, 2)} />}
          wide
        >
          <div class="stack">
            <KeyValues
              rows={[
                ['Time', formatDateTime(opened.atMs)],
                ['Kind', opened.kind],
                ['Agent', escapeInvisible(opened.agent)],
                ['Conversation', escapeInvisible(opened.session)],
                ['Tool', escapeInvisible(opened.tool)],
                ['Hash', opened.hash],
              ]}
            />
            <JsonView value={opened.data} />
          </div>
        </Dialog>
      )}
    </>
  );
}
