import './CodeBlock.css';
import type { JSX } from 'preact';
import { CopyButton } from './CopyButton';

interface Props {
  code: string;
  language?: string;
}

/** Code as it is written, with a button to copy it. */
export function CodeBlock({ code, language = '' }: Props): JSX.Element {
  return (
    <figure class="code-block" dir="ltr">
      <figcaption>
        <span>{language.slice(0, 40)}</span>
        <CopyButton getText={() => code} />
      </figcaption>
      <pre tabIndex={0}>
        <code>{code}</code>
      </pre>
    </figure>
  );
}
