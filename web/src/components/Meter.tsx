import './Meter.css';
import type { JSX } from 'preact';

interface Props {
  /** From 0 to 1. */
  value: number;
  label: string;
}

const WARN_FROM = 0.7;
const BAD_FROM = 0.9;

/** How much of something is used. */
export function Meter({ value, label }: Props): JSX.Element {
  const share = Math.min(1, Math.max(0, value));
  const tone = share >= BAD_FROM ? 'bad' : share >= WARN_FROM ? 'warn' : 'ok';
  return (
    <svg
      class={`meter meter-${tone}`}
      viewBox="0 0 100 1"
      preserveAspectRatio="none"
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
    >
      <rect width={share * 100} height={1} />
    </svg>
  );
}
