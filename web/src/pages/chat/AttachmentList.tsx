import type { JSX } from 'preact';
import { Button } from '../../components/Button';
import { Icon } from '../../components/Icon';
import { oneLine } from '../../markdown/text';
import { formatBytes } from '../../state/format';
import type { Attachment } from './outbox';

interface Props {
  attachments: readonly Attachment[];
  onRemove: (attachment: Attachment) => void;
}

/** The files of the next message. */
export function AttachmentList({ attachments, onRemove }: Props): JSX.Element | null {
  if (!attachments.length) return null;
  return (
    <ul class="composer-files" aria-label="Attached files">
      {attachments.map((attachment, at) => (
        <li key={`${at}-${attachment.name}`}>
          {attachment.mime.startsWith('image/') ? <img src={attachment.url} alt="" /> : <Icon name={attachment.mime.startsWith('audio/') ? 'mic' : 'file'} />}
          <span class="clip">{oneLine(attachment.name, 60)}</span>
          <small>{formatBytes(attachment.bytes)}</small>
          <Button kind="quiet" small icon="close" label={`Remove ${oneLine(attachment.name, 60)}`} onClick={() => onRemove(attachment)} />
        </li>
      ))}
    </ul>
  );
}
