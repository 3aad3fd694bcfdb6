import type { JSX } from 'preact';
import { Field } from '../../components/Field';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { JobDraft } from './draft';

interface Props {
  draft: JobDraft;
  onChange: (change: Partial<JobDraft>) => void;
}

/** What a job does: a turn of an agent, or a note in its main session. */
export function PayloadFields({ draft, onChange }: Props): JSX.Element {
  const isTurn = draft.payload === 'agentTurn';
  return (
    <>
      <Field
        label="What"
        hint={isTurn ? 'The agent works in a conversation of its own.' : 'The agent reads it in its main conversation.'}
      >
        {(ids) => (
          <select
            class="input"
            {...ids}
            value={draft.payload}
            onChange={(event) => onChange({ payload: event.currentTarget.value as JobDraft['payload'] })}
          >
            <option value="agentTurn">A task for the agent</option>
            <option value="systemEvent">A note for the main conversation</option>
          </select>
        )}
      </Field>
      <Field label={isTurn ? 'Task' : 'Note'}>
        {(ids) => (
          <textarea
            class="input"
            rows={4}
            required
            {...ids}
            value={draft.text}
            onInput={(event) => onChange({ text: event.currentTarget.value })}
          />
        )}
      </Field>
      <AgentField draft={draft} onChange={onChange} />
      {isTurn && <TurnFields draft={draft} onChange={onChange} />}
      {isTurn && <DeliveryFields draft={draft} onChange={onChange} />}
    </>
  );
}

function AgentField({ draft, onChange }: Props): JSX.Element {
  const { data } = useRequest('agents.list', {});
  return (
    <Field label="Agent">
      {(ids) => (
        <select
          class="input"
          {...ids}
          value={draft.agentId}
          onChange={(event) => onChange({ agentId: event.currentTarget.value })}
        >
          <option value="">The default agent{data ? ` (${oneLine(data.defaultId, 40)})` : ''}</option>
          {data?.agents.map((agent) => (
            <option key={agent.id} value={agent.id}>
              {oneLine(agent.identity?.name ?? agent.name ?? agent.id, 60)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

function TurnFields({ draft, onChange }: Props): JSX.Element {
  return (
    <details class="cron-more" open={Boolean(draft.model || draft.thinking || draft.timeoutSeconds)}>
      <summary>Model, thinking and time limit</summary>
      <div class="cron-pair">
        <Field label="Model" hint="Empty: the model of the agent">
          {(ids) => (
            <input class="input mono" {...ids} value={draft.model} onInput={(event) => onChange({ model: event.currentTarget.value })} />
          )}
        </Field>
        <Field label="Thinking">
          {(ids) => (
            <select
              class="input"
              {...ids}
              value={draft.thinking}
              onChange={(event) => onChange({ thinking: event.currentTarget.value })}
            >
              <option value="">As the agent does</option>
              {['off', 'minimal', 'low', 'medium', 'high', 'xhigh'].map((level) => (
                <option key={level}>{level}</option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Time limit in seconds" hint="Empty: the limit of jobs">
          {(ids) => (
            <input
              class="input"
              type="number"
              min="1"
              {...ids}
              value={draft.timeoutSeconds}
              onInput={(event) => onChange({ timeoutSeconds: event.currentTarget.value })}
            />
          )}
        </Field>
      </div>
    </details>
  );
}

function DeliveryFields({ draft, onChange }: Props): JSX.Element {
  return (
    <>
      <Field label="Result">
        {(ids) => (
          <select
            class="input"
            {...ids}
            value={draft.delivery}
            onChange={(event) => onChange({ delivery: event.currentTarget.value as JobDraft['delivery'] })}
          >
            <option value="announce">Send it to a chat</option>
            <option value="webhook">Post it to a web address</option>
            <option value="none">Keep it in its conversation</option>
          </select>
        )}
      </Field>
      {draft.delivery === 'announce' && (
        <div class="cron-pair">
          <Field label="Channel" hint="Empty: the chat that was used last">
            {(ids) => (
              <input
                class="input"
                placeholder="telegram"
                {...ids}
                value={draft.channel}
                onInput={(event) => onChange({ channel: event.currentTarget.value })}
              />
            )}
          </Field>
          <Field label="Recipient">
            {(ids) => (
              <input class="input mono" {...ids} value={draft.to} onInput={(event) => onChange({ to: event.currentTarget.value })} />
            )}
          </Field>
        </div>
      )}
      {draft.delivery === 'webhook' && (
        <Field label="Web address">
          {(ids) => (
            <input
              class="input mono"
              type="url"
              required
              placeholder="https://"
              {...ids}
              value={draft.to}
              onInput={(event) => onChange({ to: event.currentTarget.value })}
            />
          )}
        </Field>
      )}
    </>
  );
}
