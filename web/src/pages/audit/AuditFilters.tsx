import type { JSX } from 'preact';
import { Field } from '../../components/Field';
import type { AuditFilter } from './audit';

interface Props {
  filter: AuditFilter;
  onChange: (filter: AuditFilter) => void;
}

const KINDS: readonly (readonly [AuditFilter['kind'], string])[] = [
  ['', 'All'],
  ['decision', 'Decisions'],
  ['approval', 'Approvals'],
  ['execution', 'Executions'],
  ['config', 'Changes of settings'],
];
const RANGES: readonly (readonly [number, string])[] = [
  [0, 'Any time'],
  [1, 'Last day'],
  [7, 'Last 7 days'],
  [30, 'Last 30 days'],
];

/** Which rows are shown. */
export function AuditFilters({ filter, onChange }: Props): JSX.Element {
  return (
    <div class="audit-filters">
      <Field label="Kind">
        {(ids) => (
          <select
            class="input"
            {...ids}
            value={filter.kind}
            onChange={(event) => onChange({ ...filter, kind: event.currentTarget.value as AuditFilter['kind'] })}
          >
            {KINDS.map(([kind, label]) => (
              <option key={kind} value={kind}>
                {label}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Time">
        {(ids) => (
          <select
            class="input"
            {...ids}
            value={String(filter.days)}
            onChange={(event) => onChange({ ...filter, days: Number(event.currentTarget.value) })}
          >
            {RANGES.map(([days, label]) => (
              <option key={days} value={String(days)}>
                {label}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Agent">
        {(ids) => (
          <input
            class="input"
            {...ids}
            placeholder="all"
            value={filter.agentId}
            onChange={(event) => onChange({ ...filter, agentId: event.currentTarget.value })}
          />
        )}
      </Field>
      <Field label="Tool">
        {(ids) => (
          <input
            class="input"
            {...ids}
            placeholder="all, such as exec"
            value={filter.tool}
            onChange={(event) => onChange({ ...filter, tool: event.currentTarget.value })}
          />
        )}
      </Field>
    </div>
  );
}
