/** Times, sizes and amounts as people read them. */

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** “just now”, “14 min”, “2 h”, “yesterday” or a date. */
export function formatAgo(atMs: number, nowMs = Date.now()): string {
  const ageMs = nowMs - atMs;
  if (ageMs < MINUTE_MS) return 'just now';
  if (ageMs < HOUR_MS) return `${Math.floor(ageMs / MINUTE_MS)} min`;
  if (ageMs < DAY_MS) return `${Math.floor(ageMs / HOUR_MS)} h`;
  if (ageMs < 2 * DAY_MS) return 'yesterday';
  return new Date(atMs).toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
}

/** “9:41” or “23:10 h”. */
export function formatCountdown(seconds: number): string {
  const two = (number: number): string => String(number).padStart(2, '0');
  const left = Math.max(0, Math.ceil(seconds));
  if (left >= 3600) return `${Math.floor(left / 3600)}:${two(Math.floor((left % 3600) / 60))} h`;
  return `${Math.floor(left / 60)}:${two(left % 60)}`;
}

/** “0.4 s”, “12 s” or “3 min 5 s”. */
export function formatDuration(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function formatTime(atMs: number): string {
  return new Date(atMs).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' });
}

export function formatDateTime(atMs: number): string {
  return new Date(atMs).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
}

/** “1,204”, “12.3k” or “1.2M”. */
export function formatCount(count: number): string {
  if (count < 10_000) return count.toLocaleString('en');
  if (count < 1_000_000) return `${(count / 1000).toFixed(1).replace(/\.0$/, '')}k`;
  return `${(count / 1_000_000).toFixed(1).replace(/\.0$/, '')}M`;
}

/** “$0.042” or “$1.20”: small amounts keep two digits that say something. */
export function formatUsd(amount: number): string {
  if (amount === 0) return '$0';
  return amount >= 1 ? `$${amount.toFixed(2)}` : `$${Number(amount.toPrecision(2))}`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1).replace(/\.0$/, '')} kB`;
  return `${(bytes / 1_000_000).toFixed(1).replace(/\.0$/, '')} MB`;
}
