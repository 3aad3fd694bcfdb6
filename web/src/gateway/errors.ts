interface WireError {
  code?: string;
  message?: string;
  details?: Record<string, unknown>;
  retryAfterMs?: number;
}

/** The gateway answered a request with an error. */
export class RequestError extends Error {
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>>;
  /** After how long it makes sense to try again; 0 when it does not. */
  readonly retryAfterMs: number;
  readonly payload: Readonly<Record<string, unknown>>;

  constructor(error: WireError = {}, payload: Record<string, unknown> = {}) {
    super(error.message ?? 'the gateway refused the request');
    this.name = 'RequestError';
    this.code = error.code ?? '';
    this.details = error.details ?? {};
    this.retryAfterMs = error.retryAfterMs ?? 0;
    this.payload = payload;
  }

  /** The scope that this client lacks for the request; '' when that is not the reason. */
  get missingScope(): string {
    const named = this.details.missingScope;
    if (typeof named === 'string') return named;
    return /^missing scope: (\S+)/.exec(this.message)?.[1] ?? '';
  }
}

/** There was no answer: the connection was lost, or the request took too long. */
export class NoAnswerError extends Error {
  override readonly name = 'NoAnswerError';
  /** Whether the gateway may have done what was requested. */
  readonly wasSent: boolean;

  constructor(message: string, { wasSent }: { wasSent: boolean }) {
    super(message);
    this.wasSent = wasSent;
  }
}

/** This browser cannot prove its identity: the page came over plain HTTP, or the browser is old. */
export class NoDeviceKeyError extends RequestError {
  readonly isInsecure: boolean;

  constructor(isInsecure: boolean, cause?: RequestError) {
    super(cause ?? { message: 'this browser cannot make a device key' });
    this.name = 'NoDeviceKeyError';
    this.isInsecure = isInsecure;
  }
}

/** Return what a person reads about an error. */
export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
