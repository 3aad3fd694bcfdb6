/** What the gateway sends: answers and events. */

export interface ResponseFrame {
  type: 'res';
  id: string;
  ok: boolean;
  payload?: Record<string, unknown>;
  error?: Record<string, unknown>;
}

export interface EventFrame {
  type: 'event';
  event: string;
  payload?: Record<string, unknown>;
  seq?: number;
}

/** Return a frame of the gateway; null for what is none. */
export function parseFrame(data: unknown): ResponseFrame | EventFrame | null {
  try {
    const frame = JSON.parse(String(data)) as { type?: unknown };
    return frame.type === 'res' || frame.type === 'event' ? (frame as ResponseFrame | EventFrame) : null;
  } catch {
    return null;
  }
}
