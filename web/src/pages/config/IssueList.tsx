import type { JSX } from 'preact';
import { oneLine } from '../../markdown/text';
import type { ConfigIssue } from '../../protocol/operation-results';

interface Props {
  issues: readonly ConfigIssue[];
  isWarning?: boolean;
}

/** What is wrong with a config, each with its place. */
export function IssueList({ issues, isWarning = false }: Props): JSX.Element {
  return (
    <div role={isWarning ? undefined : 'alert'}>
      <ul class={`config-issues ${isWarning ? 'config-warnings' : ''}`}>
        {issues.map((issue, at) => (
          <li key={at}>
            {issue.path && <span class="mono">{oneLine(issue.path, 120)}: </span>}
            {/* The line of a file is not that of the editor, which has no comments. */}
            {issue.file === 'raw' && issue.line ? `line ${issue.line}: ` : ''}
            {oneLine(issue.message, 400)}
          </li>
        ))}
      </ul>
    </div>
  );
}
