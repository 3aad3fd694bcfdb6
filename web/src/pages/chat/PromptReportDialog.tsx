import type { JSX } from 'preact';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table, type Column } from '../../components/Table';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { PromptReport } from '../../protocol/results';
import { formatCount } from '../../state/format';

interface Row {
  name: string;
  chars: number;
  note: string;
}

interface Props {
  sessionKey: string;
  note: string;
  onClose: () => void;
}

const COLUMNS: readonly Column<Row>[] = [
  { title: 'Part', render: (row) => <span class="mono">{oneLine(row.name, 80)}</span> },
  { title: 'Note', render: (row) => <span class="soft">{row.note}</span>, isMinor: true },
  { title: 'Characters', align: 'end', render: (row) => formatCount(row.chars) },
];

/** What the model is told before the first message, with the size of each part. */
export function PromptReportDialog({ sessionKey, note, onClose }: Props): JSX.Element {
  const { data, error, reload } = useRequest('prompt.get', { sessionKey, text: false });
  return (
    <Dialog title="What is in the context" onClose={onClose} wide>
      <div class="stack">
        <p class="small soft">{note}.</p>
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {!data && error === null && <Loading />}
        {data &&
          groupsOf(data.report).map(([title, rows]) => (
            <section key={title}>
              <h3 class="small">{title}</h3>
              <Table label={title} columns={COLUMNS} rows={rows} getKey={(row) => row.name} empty={<p class="small soft">None.</p>} />
            </section>
          ))}
      </div>
    </Dialog>
  );
}

function groupsOf(report: PromptReport): [string, Row[]][] {
  const plain = (name: string, chars = 0, note = ''): Row => ({ name, chars, note });
  return [
    [`System prompt, ${formatCount(report.systemPrompt.chars)} characters`, report.sections.map((part) => plain(part.name, part.chars))],
    [
      'Files of the workspace',
      report.injectedWorkspaceFiles.map((file) =>
        plain(file.name, file.injectedChars, file.missing ? 'missing' : file.truncated ? `cut, has ${formatCount(file.rawChars ?? 0)}` : ''),
      ),
    ],
    ['Skills', report.skills.entries.map((skill) => plain(skill.name, skill.blockChars))],
    ['Tools', report.tools.entries.map((tool) => plain(tool.name, tool.schemaChars))],
  ];
}
