/** What the methods of scheduled jobs answer. */

/** A scheduled job of `cron.list`. */
export interface CronJob {
  id: string;
  name: string;
  enabled: boolean;
  agentId?: string;
  effectiveAgentId?: string;
  description?: string;
  deleteAfterRun?: boolean;
  schedule: CronSchedule;
  payload: CronPayload;
  delivery?: CronDelivery;
  sessionTarget?: string;
  wakeMode?: string;
  configRevision?: string;
  state?: {
    nextRunAtMs?: number;
    runningAtMs?: number;
    lastRunAtMs?: number;
    lastStatus?: 'ok' | 'error' | 'skipped';
    lastError?: string;
    lastDurationMs?: number;
    consecutiveErrors?: number;
  };
}

export interface CronSchedule {
  kind?: 'at' | 'every' | 'cron';
  at?: string;
  everyMs?: number;
  anchorMs?: number;
  expr?: string;
  tz?: string;
  staggerMs?: number;
}

export interface CronPayload {
  kind?: 'systemEvent' | 'agentTurn';
  text?: string;
  message?: string;
  model?: string | null;
  thinking?: string | null;
  timeoutSeconds?: number | null;
}

export interface CronDelivery {
  mode?: 'none' | 'announce' | 'webhook';
  channel?: string | null;
  to?: string | null;
  bestEffort?: boolean;
}

/** A run of `cron.runs`. */
export interface CronRun {
  ts: number;
  jobId: string;
  jobName?: string;
  runId?: string;
  status?: 'ok' | 'error' | 'skipped';
  error?: string;
  summary?: string;
  sessionKey?: string;
  runAtMs: number;
  durationMs?: number;
  model?: string;
  provider?: string;
}

export interface CronPreview {
  id: string;
  times: number[];
  truncated?: boolean;
  error?: string;
  fix?: string;
}

export interface ScheduleResults {
  'cron.add': CronJob;
  'cron.preview': { previews: CronPreview[] };
  'cron.remove': { ok: boolean; removed: boolean };
  'cron.run': { ok: boolean; ran: boolean; reason?: string };
  'cron.runs': { entries: CronRun[] };
  'cron.status': { enabled: boolean; jobs: number; nextWakeAtMs: number | null };
  'cron.update': CronJob;
}
