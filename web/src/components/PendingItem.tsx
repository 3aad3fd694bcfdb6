import type { JSX } from 'preact';
import type { Pending } from '../state/approvals';
import { ApprovalCard } from './ApprovalCard';
import { DeviceCard } from './DeviceCard';
import { QuestionCard } from './QuestionCard';

/** The card of whatever waits. */
export function PendingItem({ item, isInChat = false }: { item: Pending; isInChat?: boolean }): JSX.Element {
  if (item.kind === 'approval') return <ApprovalCard approval={item.approval} isInChat={isInChat} />;
  if (item.kind === 'question') return <QuestionCard question={item.question} isInChat={isInChat} />;
  return <DeviceCard device={item.device} />;
}
