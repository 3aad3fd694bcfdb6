import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Icon } from '../../components/Icon';
import type { SessionRow } from '../../protocol/results';
import type { Conversation } from './conversation';
import { ModelPicker, ThinkingPicker } from './Pickers';
import { VoiceButton } from './VoiceButton';

interface Props {
  conversation: Conversation;
  row: SessionRow | undefined;
  canSend: boolean;
  onFiles: (files: Iterable<File>) => void;
  onCommands: () => void;
  /** Stops the answer; null when there is none. */
  onStop: (() => void) | null;
}

/** The row below the field: files, commands, model, thinking, stop and send. */
export function ComposerTools({ conversation, row, canSend, onFiles, onCommands, onStop }: Props): JSX.Element {
  const chooser = useRef<HTMLInputElement>(null);
  const waiting = row?.queueDepth ?? 0;
  const mode = row?.queueMode ?? '';
  return (
    <div class="composer-tools">
      <input
        ref={chooser}
        type="file"
        multiple
        hidden
        aria-label="Files to attach"
        onChange={(event) => {
          if (event.currentTarget.files) onFiles(event.currentTarget.files);
          event.currentTarget.value = '';
        }}
      />
      <Button kind="quiet" icon="clip" label="Attach files" onClick={() => chooser.current?.click()} />
      <VoiceButton onRecorded={(file) => onFiles([file])} />
      <Button kind="quiet" small onClick={onCommands} class="composer-commands">
        / commands
      </Button>
      <ModelPicker conversation={conversation} row={row} />
      <ThinkingPicker conversation={conversation} />
      <span class="spread" />
      {onStop && mode && (
        <span class="composer-queue" title={`What happens with messages that you send meanwhile: ${mode}. /queue changes it.`}>
          {waiting > 0 ? `${waiting} queued · ${mode}` : `queue: ${mode}`}
        </span>
      )}
      {onStop && (
        <Button icon="stop" onClick={onStop} class="composer-stop">
          Stop
        </Button>
      )}
      <button type="submit" class="composer-send" aria-label="Send" title="Send (Enter)" disabled={!canSend}>
        <Icon name="up" />
      </button>
    </div>
  );
}
