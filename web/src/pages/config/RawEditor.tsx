import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';

interface Props {
  text: string;
  onChange: (text: string) => void;
  isInvalid: boolean;
}

/** The config as JSON5 in a plain text field with numbered lines. Tab leaves the field, as elsewhere. */
export function RawEditor({ text, onChange, isInvalid }: Props): JSX.Element {
  const numbers = useRef<HTMLPreElement>(null);
  const count = text.split('\n').length;
  return (
    <div class="raw-editor">
      <pre class="raw-numbers" aria-hidden="true" ref={numbers}>
        {Array.from({ length: count }, (_, at) => at + 1).join('\n')}
      </pre>
      <textarea
        class="raw-text"
        aria-label="Config as JSON5"
        aria-invalid={isInvalid || undefined}
        spellcheck={false}
        autoComplete="off"
        wrap="off"
        value={text}
        onInput={(event) => onChange(event.currentTarget.value)}
        onScroll={(event) => {
          if (numbers.current) numbers.current.scrollTop = event.currentTarget.scrollTop;
        }}
      />
    </div>
  );
}
