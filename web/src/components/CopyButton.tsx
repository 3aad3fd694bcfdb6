import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { announce } from '../state/announce';
import { copyText } from '../state/clipboard';
import { Button } from './Button';

interface Props {
  getText: () => string | Promise<string>;
  label?: string;
}

const SHOWN_MS = 1_500;

/** A button that copies a text and says so. */
export function CopyButton({ getText, label = 'Copy' }: Props): JSX.Element {
  const [outcome, setOutcome] = useState('');
  const copy = async (): Promise<void> => {
    const words = (await copyText(await getText())) ? 'Copied' : 'Not copied';
    setOutcome(words);
    announce(words);
    setTimeout(() => setOutcome(''), SHOWN_MS);
  };
  return (
    <Button kind="quiet" small onClick={() => void copy()}>
      {outcome || label}
    </Button>
  );
}
