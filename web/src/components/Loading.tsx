import './Loading.css';
import type { JSX } from 'preact';

/** Shown while something is loaded for the first time. */
export function Loading({ label = 'Loading' }: { label?: string }): JSX.Element {
  return (
    <p class="loading" role="status">
      <span class="loading-dots" aria-hidden="true" />
      {label}…
    </p>
  );
}
