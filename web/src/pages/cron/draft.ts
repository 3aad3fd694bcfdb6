/** A job as the form holds it, and its JSON. */

import type { CronDelivery, CronJob, CronPayload, CronSchedule } from '../../protocol/schedule-results';
import { formatDateTime } from '../../state/format';

export type EveryUnit = 'minutes' | 'hours' | 'days';

export interface JobDraft {
  name: string;
  agentId: string;
  enabled: boolean;
  kind: 'at' | 'every' | 'cron';
  /** As a field of the browser has it, in the browser's time zone: `2026-02-03T10:00`. */
  at: string;
  deleteAfterRun: boolean;
  every: string;
  unit: EveryUnit;
  expr: string;
  tz: string;
  payload: 'agentTurn' | 'systemEvent';
  text: string;
  model: string;
  thinking: string;
  timeoutSeconds: string;
  delivery: 'none' | 'announce' | 'webhook';
  channel: string;
  to: string;
}

const UNIT_MS: Record<EveryUnit, number> = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 };
const MINUTE_MS = 60_000;

export function emptyDraft(now = new Date()): JobDraft {
  const nextHour = new Date(now.getFullYear(), now.getMonth(), now.getDate(), now.getHours() + 1);
  return {
    name: '',
    agentId: '',
    enabled: true,
    kind: 'cron',
    at: toLocalField(nextHour),
    deleteAfterRun: true,
    every: '1',
    unit: 'hours',
    expr: '30 7 * * *',
    tz: Intl.DateTimeFormat().resolvedOptions().timeZone,
    payload: 'agentTurn',
    text: '',
    model: '',
    thinking: '',
    timeoutSeconds: '',
    delivery: 'announce',
    channel: '',
    to: '',
  };
}

/** Return the draft of an existing job. */
export function draftOf(job: CronJob): JobDraft {
  const { schedule, payload } = job;
  const [every, unit] = splitInterval(schedule.everyMs ?? UNIT_MS.hours);
  const atMs = Date.parse(schedule.at ?? '');
  return {
    ...emptyDraft(),
    name: job.name,
    agentId: job.agentId ?? '',
    enabled: job.enabled,
    kind: schedule.kind ?? 'cron',
    ...(Number.isNaN(atMs) ? {} : { at: toLocalField(new Date(atMs)) }),
    deleteAfterRun: job.deleteAfterRun ?? false,
    every,
    unit,
    expr: schedule.expr ?? '',
    tz: schedule.tz ?? '',
    ...payloadDraft(payload),
    delivery: job.delivery?.mode ?? 'none',
    channel: job.delivery?.channel ?? '',
    to: job.delivery?.to ?? '',
  };
}

function payloadDraft(payload: CronPayload): Pick<JobDraft, 'payload' | 'text' | 'model' | 'thinking' | 'timeoutSeconds'> {
  return {
    payload: payload.kind ?? 'agentTurn',
    text: payload.message ?? payload.text ?? '',
    model: payload.model ?? '',
    thinking: payload.thinking ?? '',
    timeoutSeconds: payload.timeoutSeconds ? String(payload.timeoutSeconds) : '',
  };
}

/** Return the schedule of a draft; null while it is incomplete. */
export function draftSchedule(draft: JobDraft, old?: CronSchedule): CronSchedule | null {
  if (draft.kind === 'at') {
    const at = new Date(draft.at);
    return Number.isNaN(at.getTime()) ? null : { kind: 'at', at: at.toISOString() };
  }
  if (draft.kind === 'every') {
    const everyMs = Math.round(Number(draft.every) * UNIT_MS[draft.unit]);
    if (!(everyMs >= MINUTE_MS)) return null;
    const isSame = old?.everyMs === everyMs && old.anchorMs !== undefined;
    return { kind: 'every', everyMs, ...(isSame ? { anchorMs: old.anchorMs } : {}) };
  }
  const expr = draft.expr.trim();
  if (!expr) return null;
  const stagger = old?.expr === expr && old.staggerMs !== undefined ? { staggerMs: old.staggerMs } : {};
  return { kind: 'cron', expr, ...(draft.tz.trim() ? { tz: draft.tz.trim() } : {}), ...stagger };
}

/** Return what a new job is made of, or the patch of an existing one: there, null removes. */
export function draftFields(draft: JobDraft, schedule: CronSchedule, old?: CronJob): Record<string, unknown> {
  const isTurn = draft.payload === 'agentTurn';
  const fields: Record<string, unknown> = {
    name: draft.name.trim(),
    agentId: draft.agentId || (old?.agentId ? null : undefined),
    enabled: draft.enabled,
    schedule,
    deleteAfterRun: draft.kind === 'at' ? draft.deleteAfterRun : old?.deleteAfterRun ? false : undefined,
    sessionTarget: isTurn ? 'isolated' : 'main',
    payload: payloadOf(draft, old?.payload),
    delivery: isTurn ? deliveryOf(draft, old?.delivery) : old?.delivery ? null : undefined,
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function payloadOf(draft: JobDraft, old?: CronPayload): CronPayload {
  if (draft.payload === 'systemEvent') return { kind: 'systemEvent', text: draft.text.trim() };
  const timeout = Number(draft.timeoutSeconds);
  return {
    kind: 'agentTurn',
    message: draft.text.trim(),
    ...optional('model', draft.model, old?.model),
    ...optional('thinking', draft.thinking, old?.thinking),
    ...(timeout > 0 ? { timeoutSeconds: timeout } : old?.timeoutSeconds ? { timeoutSeconds: null } : {}),
  };
}

function deliveryOf(draft: JobDraft, old?: CronDelivery): CronDelivery {
  if (draft.delivery === 'none') return { mode: 'none' };
  if (draft.delivery === 'webhook') return { mode: 'webhook', to: draft.to.trim() };
  return { mode: 'announce', ...optional('channel', draft.channel, old?.channel), ...optional('to', draft.to, old?.to) };
}

function optional<K extends string>(key: K, text: string, old?: string | null): Partial<Record<K, string | null>> {
  if (text.trim()) return { [key]: text.trim() } as Record<K, string>;
  return old ? ({ [key]: null } as Record<K, null>) : {};
}

/** Return a schedule as people say it. */
export function describeSchedule(schedule: CronSchedule): string {
  if (schedule.kind === 'at') {
    const atMs = Date.parse(schedule.at ?? '');
    return Number.isNaN(atMs) ? `once, ${schedule.at ?? '?'}` : `once, ${formatDateTime(atMs)}`;
  }
  if (schedule.kind === 'every') {
    const [count, unit] = splitInterval(schedule.everyMs ?? 0);
    return count === '1' ? `every ${unit.slice(0, -1)}` : `every ${count} ${unit}`;
  }
  return [schedule.expr ?? '?', schedule.tz].filter(Boolean).join(' · ');
}

function splitInterval(everyMs: number): [string, EveryUnit] {
  for (const unit of ['days', 'hours'] as const)
    if (everyMs >= UNIT_MS[unit] && everyMs % UNIT_MS[unit] === 0) return [String(everyMs / UNIT_MS[unit]), unit];
  return [String(Math.round((everyMs / UNIT_MS.minutes) * 100) / 100), 'minutes'];
}

function toLocalField(date: Date): string {
  const two = (number: number): string => String(number).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}`;
}
