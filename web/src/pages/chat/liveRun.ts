/** A run under way: what was streamed and is not in the history yet. */

import type { EventPayloads, ToolData } from '../../protocol/protocol.generated';
import type { HistoryMessage } from '../../protocol/results';
import { idOf, textOf, type Block, type ToolBlock } from './turns';

type AgentEvent = EventPayloads['agent'];

/** Collects the blocks of one run. Pure: the caller says when to draw. */
export class LiveRun {
  readonly runId: string;
  blocks: Block[] = [];
  /** Tool calls by id, also those whose block is in the history already. */
  readonly tools = new Map<string, ToolBlock>();
  state: 'running' | 'done' | 'stopped' | 'failed' = 'running';
  error = '';
  /** The last message of the history when the run had failed. */
  failedAfter: string | null = null;
  notice = '';
  #count = 0;
  #closedText = ''; // of the last text block that is complete

  constructor(runId: string) {
    this.runId = runId;
  }

  get isSilent(): boolean {
    return this.blocks.length === 0 && this.tools.size === 0;
  }

  /** The last text, which is still being written. */
  get text(): string {
    const last = this.blocks.at(-1);
    return last?.kind === 'text' ? last.text : '';
  }

  handle({ stream, data, ts }: AgentEvent): void {
    if (stream === 'assistant') this.setText(data.text);
    else if (stream === 'thinking') this.#setThinking(data.text);
    else if (stream === 'tool') this.#handleTool(data, ts);
    else if (stream === 'compaction') this.notice = data.phase === 'start' ? 'Summarising earlier messages…' : '';
    else if (stream === 'lifecycle') {
      if (data.phase === 'fallback') this.#restart(`${data.provider ?? ''}/${data.model ?? ''} failed: ${data.error ?? data.reason ?? ''}`);
      else if (data.phase === 'start') this.notice = '';
    }
  }

  /** Show the complete text of the message that is being written. */
  setText(text: string): void {
    const last = this.blocks.at(-1);
    if (last?.kind === 'text') {
      if (!last.text.startsWith(text)) this.blocks = [...this.blocks.slice(0, -1), { ...last, text }];
      return;
    }
    if (!text.trim() || this.#closedText.startsWith(text)) return; // one that arrives late
    this.blocks = [...this.blocks, { kind: 'text', key: this.#newKey(), text, cutId: '' }];
  }

  /** Use the text of a `chat` delta, where the stream itself was not received from the start. */
  catchUp(text: string): void {
    if (!this.text) this.setText(text);
  }

  /** Leave out the blocks that the history has. */
  prune(messages: readonly HistoryMessage[]): void {
    const called = new Set(messages.flatMap(({ content }) => content.flatMap((part) => (part.type === 'toolCall' ? [part.id] : []))));
    const saved = this.blocks.findLastIndex((block) => block.kind === 'tool' && called.has(block.id));
    this.blocks = this.blocks.slice(saved + 1);
    const last = messages.at(-1);
    const isSaved = last?.role === 'assistant' && this.text !== '' && textOf(last.content) === this.text;
    if (isSaved) this.blocks = [];
  }

  #setThinking(text: string): void {
    const last = this.blocks.at(-1);
    if (last?.kind === 'thinking') this.blocks = [...this.blocks.slice(0, -1), { ...last, text }];
    else if (text.trim()) this.blocks = [...this.blocks, { kind: 'thinking', key: this.#newKey(), text }];
  }

  #handleTool(data: ToolData, ts: number): void {
    if (this.text) this.#closedText = this.text;
    const known = this.tools.get(data.toolCallId);
    const block = updateTool(known ?? this.#newTool(data, ts), data, ts);
    this.tools.set(block.id, block);
    const at = this.blocks.findIndex((each) => each.kind === 'tool' && each.id === block.id);
    if (at >= 0) this.blocks = this.blocks.with(at, block);
    else if (!known) this.blocks = [...this.blocks, block];
  }

  #newTool({ name, toolCallId, args }: ToolData, ts: number): ToolBlock {
    return {
      kind: 'tool',
      key: this.#newKey(),
      id: toolCallId,
      name,
      args: args ?? {},
      output: null,
      isError: false,
      isRunning: true,
      startedAtMs: ts,
      endedAtMs: 0,
      details: null,
      images: [],
    };
  }

  /** The model call failed and another is tried: what it wrote is discarded. */
  #restart(notice: string): void {
    const keep = this.blocks.findLastIndex(({ kind }) => kind === 'tool');
    this.blocks = this.blocks.slice(0, keep + 1);
    this.notice = notice;
  }

  #newKey(): string {
    return `${this.runId}-${this.#count++}`;
  }
}

function updateTool(block: ToolBlock, data: ToolData, ts: number): ToolBlock {
  const text = (output: { content: { text: string }[] } | undefined): string | null =>
    output ? output.content.map((part) => part.text).join('') : null;
  if (data.phase === 'update') return { ...block, output: text(data.partialResult) ?? block.output };
  if (data.phase !== 'result') return block;
  return {
    ...block,
    isRunning: false,
    isError: data.isError ?? false,
    output: text(data.result) ?? block.output,
    details: data.result?.details ?? null,
    endedAtMs: ts,
  };
}

/** Return whether a run has ended and the history has its answer. A failure may be stored nowhere. */
export function isSettled(run: LiveRun, newest: readonly HistoryMessage[]): boolean {
  if (run.state === 'running') return false;
  const last = newest.at(-1);
  if (run.state !== 'failed' || last?.errorMessage) return true;
  run.failedAfter ??= idOf(last);
  return run.failedAfter !== idOf(last); // the conversation went on
}
