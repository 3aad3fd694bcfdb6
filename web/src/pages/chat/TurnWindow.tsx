import type { JSX } from 'preact';
import { memo } from 'preact/compat';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Gradual } from '../../components/Gradual';
import { drawBudget } from '../../state/drawBudget';
import { costOf } from './chunks';
import type { Conversation } from './conversation';
import type { Turn } from './turns';
import { TurnView } from './TurnView';
import type { Viewport } from './viewport';

interface Props {
  turns: readonly Turn[];
  conversation: Conversation;
  viewport: Viewport;
  /** Whether the newest turns are in it, which are in view at the start. */
  isNewest: boolean;
}

const ESTIMATED_TURN_PX = 150;

/** Some turns; while they are far from what is in view, a box of the same height stands for them. */
export const TurnWindow = memo(
  function TurnWindow({ turns, conversation, viewport, isNewest }: Props): JSX.Element {
    const box = useRef<HTMLDivElement>(null);
    const heightPx = useRef(turns.length * ESTIMATED_TURN_PX);
    const [isNear, setNear] = useState(isNewest);
    useEffect(() => {
      const element = box.current;
      if (!element) return undefined;
      let wasNear = isNewest;
      return viewport.observe(element, (isNow, measuredPx) => {
        if (wasNear && !isNow) heightPx.current = measuredPx;
        wasNear = isNow;
        setNear(isNow);
      });
    }, [viewport, isNewest]);
    const wasFar = useRef(false);
    useLayoutEffect(() => {
      const style = box.current?.style;
      if (!style) return undefined;
      style.height = isNear ? '' : `${heightPx.current}px`;
      // Until the turns are drawn, the box keeps its height.
      style.minHeight = isNear && wasFar.current ? `${heightPx.current}px` : '';
      wasFar.current = !isNear;
      return isNear ? drawBudget.whenIdle(() => (style.minHeight = '')) : undefined;
    }, [isNear]);
    const nodes = useMemo(
      () => turns.map((turn) => <TurnView key={turn.key} turn={turn} conversation={conversation} />),
      [turns, conversation],
    );
    return (
      <div class="chat-chunk" ref={box}>
        {isNear && <Gradual nodes={nodes} costs={turns.map(costOf)} />}
      </div>
    );
  },
  (before, after) =>
    before.conversation === after.conversation && before.isNewest === after.isNewest && sameTurns(before.turns, after.turns),
);

function sameTurns(before: readonly Turn[], after: readonly Turn[]): boolean {
  return before === after || (before.length === after.length && before.every((turn, at) => turn === after[at]));
}
