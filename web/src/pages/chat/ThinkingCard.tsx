import type { JSX } from 'preact';
import { Icon } from '../../components/Icon';
import { escapeInvisible } from '../../markdown/text';

interface Props {
  text: string;
  isLive: boolean;
}

/** The reasoning of the model: one line that opens. */
export function ThinkingCard({ text, isLive }: Props): JSX.Element {
  return (
    <details class="chat-card chat-thinking">
      <summary>
        <Icon name="lightbulb" />
        <b>{isLive ? 'Thinking…' : 'Thought'}</b>
        {isLive && <span class="clip soft">{escapeInvisible(text.slice(-120)).replaceAll('\n', ' ')}</span>}
      </summary>
      <p>{escapeInvisible(text)}</p>
    </details>
  );
}
