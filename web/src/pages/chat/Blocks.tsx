import type { JSX } from 'preact';
import { Gradual } from '../../components/Gradual';
import { costsOf } from './chunks';
import type { Conversation } from './conversation';
import { MessageImage } from './MessageImage';
import { TextBlock } from './TextBlock';
import { ThinkingCard } from './ThinkingCard';
import { ToolCard } from './ToolCard';
import type { Block, ToolBlock } from './turns';

interface Props {
  blocks: readonly Block[];
  /** The conversation whose history this is; null for what is streamed. */
  conversation: Conversation | null;
  isLive?: boolean;
}

/** What an agent wrote, thought and did, in order. */
export function Blocks({ blocks, conversation, isLive = false }: Props): JSX.Element {
  const sessionKey = conversation?.key ?? '';
  const nodes = blocks.map((block, at) => {
    switch (block.kind) {
      case 'text':
        return <TextBlock key={block.key} block={block} sessionKey={sessionKey} />;
      case 'thinking':
        return <ThinkingCard key={block.key} text={block.text} isLive={isLive && at === blocks.length - 1} />;
      case 'image':
        return <MessageImage key={block.key} image={block.image} sessionKey={sessionKey} />;
      case 'tool':
        return conversation && block.output === null ? (
          <OpenTool key={block.key} block={block} conversation={conversation} />
        ) : (
          <ToolCard key={block.key} block={block} sessionKey={sessionKey} />
        );
    }
  });
  return <Gradual nodes={nodes} costs={costsOf(blocks)} />;
}

/** A call of the history that has no result yet: what is streamed of it is shown. */
function OpenTool({ block, conversation }: { block: ToolBlock; conversation: Conversation }): JSX.Element {
  // Reading the version draws it again with each frame.
  const current = conversation.version.value ? conversation.findTool(block.id) : undefined;
  return <ToolCard block={current ? { ...block, ...current, key: block.key } : block} sessionKey={conversation.key} />;
}
