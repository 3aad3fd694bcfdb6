import type { RefObject } from 'preact';
import { useCallback, useEffect, useRef } from 'preact/hooks';

const NEAR_PX = 80;

type Box = RefObject<HTMLElement | null>;

interface StickyScroll {
  /** Call after the content changed: a reader at the end stays there. */
  keepEnd: () => void;
  /** Call after older content was put before the rest: what is in view stays in place. */
  keepPlace: () => void;
}

/** Keep a scrolled box where its reader is; `onMoved` is told whether that is at the end. */
export function useStickyScroll(box: Box, content: Box, onMoved: (isAtEnd: boolean) => void): StickyScroll {
  const isAtEnd = useRef(true);
  const before = useRef({ height: 0, top: 0 });
  const keepEnd = useCallback(() => {
    const log = box.current;
    if (log && isAtEnd.current) log.scrollTop = log.scrollHeight;
  }, [box]);
  const keepPlace = useCallback(() => {
    const log = box.current;
    if (!log || isAtEnd.current || !before.current.height) return;
    // Browsers that anchor the scroll position have moved it already.
    const grown = log.scrollHeight - before.current.height;
    if (grown > 0 && Math.abs(log.scrollTop - before.current.top) < 2) log.scrollTop = before.current.top + grown;
  }, [box]);
  useEffect(() => {
    const log = box.current;
    if (!log || !content.current) return undefined;
    const remember = (): void => {
      const isNear = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;
      // A reader leaves the end by scrolling up; a change of the size is not the reader's.
      isAtEnd.current = isNear || (isAtEnd.current && log.scrollTop >= before.current.top);
      before.current = { height: log.scrollHeight, top: log.scrollTop };
      onMoved(isAtEnd.current);
    };
    log.addEventListener('scroll', remember, { passive: true });
    // A phone's keyboard, a longer draft or an image that was loaded change the size.
    const observer = new ResizeObserver(keepEnd);
    observer.observe(log);
    observer.observe(content.current);
    return () => {
      log.removeEventListener('scroll', remember);
      observer.disconnect();
    };
  }, [box, content, keepEnd, onMoved]);
  return { keepEnd, keepPlace };
}
