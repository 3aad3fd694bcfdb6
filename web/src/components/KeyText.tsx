import type { JSX } from 'preact';
import { Fragment } from 'preact';

/** A description of a setting: what is between backticks is shown as code. */
export function KeyText({ text }: { text: string }): JSX.Element {
  return (
    <>
      {text.split('`').map((part, at) => (at % 2 ? <code key={at}>{part}</code> : <Fragment key={at}>{part}</Fragment>))}
    </>
  );
}
