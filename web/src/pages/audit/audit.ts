/** Rows of the audit log as sentences. Pure. */

import type { Tone } from '../../components/Badge';
import type { AuditRow } from '../../protocol/operation-results';

export interface AuditFilter {
  kind: '' | 'decision' | 'approval' | 'execution' | 'config';
  agentId: string;
  tool: string;
  /** Rows of the last days; 0 for all. */
  days: number;
}

const BAD = new Set(['deny', 'denied', 'error', 'failed', 'timeout']);
const HIDDEN = new Set(['hash', 'request', 'digest']);

/** Return what a row says, on one line. */
export function describeRow({ kind, data }: AuditRow): string {
  if (kind === 'decision') return [`${text(data.action)} by ${text(data.rule)}`, text(data.reason)].filter(Boolean).join(': ');
  if (kind === 'execution') {
    const parts = [text(data.outcome)];
    if (typeof data.durationMs === 'number') parts.push(`in ${data.durationMs} ms`);
    if (typeof data.exitCode === 'number') parts.push(`exit ${data.exitCode}`);
    if (data.place) parts.push(text(data.place));
    return parts.filter(Boolean).join(', ');
  }
  return Object.entries(data)
    .filter(([name]) => !HIDDEN.has(name))
    .map(([name, value]) => `${name} ${text(value)}`)
    .join('; ');
}

/** Return the colour of a row: denied and failed calls stand out. */
export function toneOf({ kind, data }: AuditRow): Tone {
  const outcome = text(data.action ?? data.decision ?? data.outcome).toLowerCase();
  if (BAD.has(outcome) || (typeof data.exitCode === 'number' && data.exitCode !== 0)) return 'bad';
  if (kind === 'config') return 'warn';
  return kind === 'approval' || outcome === 'ask' ? 'info' : 'neutral';
}

function text(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (Array.isArray(value)) return value.map(text).join(', ');
  if (typeof value === 'object') return JSON.stringify(value);
  return typeof value === 'string' ? value : JSON.stringify(value);
}
