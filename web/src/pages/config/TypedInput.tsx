import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { FieldIds } from '../../components/Field';

interface Props {
  ids: FieldIds;
  /** The text of the value, shown unless the person is typing. */
  text: string;
  placeholder: string;
  onText: (text: string) => void;
  /** More than one line. */
  rows?: number;
  isSecret?: boolean;
  isMono?: boolean;
  inputMode?: 'text' | 'decimal';
}

/** A text field whose value is another form of what is typed, such as a number: it leaves the typing alone. */
export function TypedInput({ ids, text, placeholder, onText, rows, isSecret, isMono, inputMode = 'text' }: Props): JSX.Element {
  const [typed, setTyped] = useState<string | null>(null);
  const onInput = (event: { currentTarget: { value: string } }): void => {
    setTyped(event.currentTarget.value);
    onText(event.currentTarget.value);
  };
  const common = {
    ...ids,
    class: isMono ? 'input mono' : 'input',
    value: typed ?? text,
    placeholder,
    spellcheck: false,
    onInput,
    onBlur: () => setTyped(null),
  };
  if (rows !== undefined) return <textarea rows={rows} {...common} />;
  if (isSecret) return <input type="password" autoComplete="off" {...common} />;
  return <input type="text" inputMode={inputMode} autoComplete="off" {...common} />;
}
