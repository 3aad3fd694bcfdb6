import './Card.css';
import type { ComponentChildren, JSX } from 'preact';
import { useId } from 'preact/hooks';

interface Props {
  title?: ComponentChildren;
  /** Stands at the right of the title: a figure, a badge or a button. */
  aside?: ComponentChildren;
  children?: ComponentChildren;
  class?: string;
}

/** A panel with a title. In a `.grid`, `class="wide"` takes two columns and `full` all. */
export function Card({ title, aside, children, class: extra = '' }: Props): JSX.Element {
  const id = useId();
  return (
    <section class={`card ${extra}`} aria-labelledby={title ? id : undefined}>
      {(title ?? aside) !== undefined && (
        <header class="card-head">
          <h2 id={id} class="card-title">
            {title}
          </h2>
          {aside}
        </header>
      )}
      {children}
    </section>
  );
}
