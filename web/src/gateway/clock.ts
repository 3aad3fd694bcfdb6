/** The gateway's clock: what it says expires by that one, and the clock of this device may be wrong. */

let aheadMs = 0;

/** Note the gateway's time, which it has just sent. */
export function setGatewayTime(nowMs: number): void {
  if (Number.isFinite(nowMs) && nowMs > 0) aheadMs = nowMs - Date.now();
}

/** Return the gateway's time in milliseconds; this device's, until the gateway has told its own. */
export function gatewayNow(): number {
  return Date.now() + aheadMs;
}
