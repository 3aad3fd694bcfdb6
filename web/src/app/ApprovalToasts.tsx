import './ApprovalToasts.css';
import type { JSX } from 'preact';
import { Button } from '../components/Button';
import { Icon } from '../components/Icon';
import { oneLine } from '../markdown/text';
import { pending, sessionOf, type Pending } from '../state/approvals';
import { closedNotices, closeNotices } from '../state/closedNotices';
import { mainSessionKey } from '../state/sessions';
import { navigate, route } from './router';

/** What waits for the person, on every page but those that show it. The answer is given there. */
export function ApprovalToasts(): JSX.Element | null {
  const { path, query } = route.value;
  const shown = path === 'chat' ? (query.session ?? mainSessionKey()) : '';
  const isShown = (item: Pending): boolean =>
    item.kind === 'device' ? path === 'devices' : shown !== '' && sessionOf(item) === shown;
  const waiting = pending.value.filter((item) => !closedNotices.value.has(item.id) && !isShown(item));
  const first = waiting[0];
  if (!first || path === 'approvals') return null;
  return (
    <div class="approval-toast" role="status">
      <Icon name="shield" />
      <div class="approval-toast-text">
        <strong>{waiting.length > 1 ? `${waiting.length} things wait for you` : 'Something waits for you'}</strong>
        <span class="clip">{subjectOf(first)}</span>
      </div>
      <Button kind="primary" small onClick={() => navigate('approvals')}>
        Review
      </Button>
      <Button
        kind="quiet"
        small
        icon="close"
        label="Close the notice"
        onClick={() => closeNotices(waiting.map(({ id }) => id))}
      />
    </div>
  );
}

function subjectOf(item: Pending): string {
  if (item.kind === 'device') return 'A device wants to connect';
  const { request } = item.kind === 'approval' ? item.approval : { request: item.question.questions[0] ?? {} };
  const texts = [request.question, request.command, request.title];
  return oneLine(texts.find((text) => typeof text === 'string') ?? 'A tool call', 120);
}
