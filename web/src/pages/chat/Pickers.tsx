import type { JSX } from 'preact';
import { Menu, type MenuItem } from '../../components/Menu';
import { describeError } from '../../gateway/errors';
import { call, may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { SessionRow } from '../../protocol/results';
import { defaultAgentId, defaultModel } from '../../state/sessions';
import { showToast } from '../../state/toasts';
import { primaryModel } from '../agents/models';
import type { Conversation } from './conversation';

const LEVELS = ['off', 'minimal', 'low', 'medium', 'high'];

interface Props {
  conversation: Conversation;
  row: SessionRow | undefined;
}

/** Choose the model of the conversation. */
export function ModelPicker({ conversation, row }: Props): JSX.Element | null {
  const { data } = useRequest('models.list', {});
  const current = row?.model ?? '';
  const newModel = useNewModel(conversation.key, row);
  const expected = current || newModel;
  if (!expected && !data?.models.length) return null;
  const items: MenuItem[] = (data?.models ?? []).slice(0, 200).map((model) => ({
    label: `${oneLine(model.name || model.id, 50)} · ${oneLine(model.provider, 30)}`,
    isChecked: model.id === current && (!row?.modelProvider || model.provider === row.modelProvider),
    onSelect: () => patch(conversation, { model: `${model.provider}/${model.id}` }),
  }));
  items.unshift({ label: 'As the agent', icon: 'users', onSelect: () => patch(conversation, { model: null }) });
  return <Picker label="Model" value={oneLine(expected, 40) || 'model'} items={items} />;
}

/** Return the model that a new conversation starts with: that of its agent; '' until it is known. */
function useNewModel(key: string, row: SessionRow | undefined): string {
  const agentId = key.split(':')[1] ?? '';
  const isDefault = agentId === defaultAgentId();
  const { data } = useRequest('agents.list', row || isDefault ? null : {});
  if (row) return '';
  return isDefault ? defaultModel.value : primaryModel(data?.agents ?? [], agentId);
}

/** Choose how much the model thinks. */
export function ThinkingPicker({ conversation }: { conversation: Conversation }): JSX.Element | null {
  const current = conversation.thinking.value;
  if (!current) return null;
  const items = LEVELS.map((level) => ({
    label: level,
    isChecked: level === current,
    onSelect: () => patch(conversation, { thinkingLevel: level }),
  }));
  return <Picker label="Thinking" value={`thinking: ${oneLine(current, 20)}`} items={items} />;
}

function Picker({ label, value, items }: { label: string; value: string; items: readonly MenuItem[] }): JSX.Element {
  if (!may('admin')) return <span class="composer-chip">{value}</span>;
  return (
    <Menu label={label} items={items} isUp class="composer-picker">
      <span class="clip">{value}</span>
    </Menu>
  );
}

function patch(conversation: Conversation, change: { model?: string | null; thinkingLevel?: string }): void {
  call('sessions.patch', { key: conversation.key, ...change }).then(
    () => void conversation.load(),
    (error: unknown) => showToast({ tone: 'bad', text: describeError(error) }),
  );
}
