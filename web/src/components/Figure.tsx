import type { ComponentChildren, JSX } from 'preact';

interface Props {
  value: ComponentChildren;
  unit?: ComponentChildren;
}

/** The number that a card is about. */
export function Figure({ value, unit }: Props): JSX.Element {
  return (
    <p class="card-number">
      {value} {unit !== undefined && <small>{unit}</small>}
    </p>
  );
}
