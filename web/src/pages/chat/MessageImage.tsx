import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Icon } from '../../components/Icon';
import { NoAnswerError } from '../../gateway/errors';
import { call, onOpen } from '../../gateway/gateway';
import { oneLine } from '../../markdown/text';
import type { ImageRef } from './turns';

const TYPES = /^image\/(?:png|jpeg|gif|webp)$/;

interface Props {
  image: ImageRef;
  sessionKey: string;
}

/** An image of the transcript, loaded from the gateway when it comes near. */
export function MessageImage({ image, sessionKey }: Props): JSX.Element {
  const box = useRef<HTMLElement>(null);
  const [url, setUrl] = useState('');
  const [isMissing, setMissing] = useState(false);
  const { messageId, index, path } = image;
  const name = path ? (path.split('/').at(-1) ?? path) : 'Image';
  useEffect(() => {
    let isLoaded = false;
    const load = (): void => {
      const which = path ? { media: path } : { index: index ?? 0 };
      call('chat.message.get', { sessionKey, messageId, ...which }).then(
        ({ image: found }) => {
          isLoaded = true;
          if (found && TYPES.test(found.mimeType)) setUrl(`data:${found.mimeType};base64,${found.data}`);
          else setMissing(true);
        },
        // Without an answer it is loaded with the next connection.
        (error: unknown) => setMissing(!(error instanceof NoAnswerError)),
      );
    };
    let end: (() => void) | undefined;
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      observer.disconnect();
      end = onOpen(() => {
        if (!isLoaded) load();
      });
    }, { rootMargin: '400px' });
    if (box.current && messageId) observer.observe(box.current);
    return () => {
      observer.disconnect();
      end?.();
    };
  }, [sessionKey, messageId, index, path]);
  return (
    <span class="chat-image" ref={box}>
      {url ? (
        <img src={url} alt={oneLine(name, 100)} />
      ) : (
        <span class="chat-file">
          <Icon name={isMissing && path ? 'file' : 'image'} />
          {isMissing && !path ? 'This image is not available' : oneLine(name, 100)}
        </span>
      )}
    </span>
  );
}
