import './Badge.css';
import type { ComponentChildren, JSX } from 'preact';

export type Tone = 'neutral' | 'ok' | 'warn' | 'bad' | 'info' | 'accent';

interface Props {
  tone?: Tone;
  children: ComponentChildren;
  title?: string;
}

/** A short state in a pill. */
export function Badge({ tone = 'neutral', children, title }: Props): JSX.Element {
  return (
    <span class={`badge badge-${tone}`} title={title}>
      {children}
    </span>
  );
}
