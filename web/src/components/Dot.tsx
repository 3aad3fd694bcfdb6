import './Dot.css';
import type { JSX } from 'preact';
import type { Tone } from './Badge';

/** A coloured dot; the text beside it says what the colour means. */
export function Dot({ tone }: { tone: Tone }): JSX.Element {
  return <span class={`dot dot-${tone}`} aria-hidden="true" />;
}
