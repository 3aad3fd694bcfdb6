/** The notes of a timeline, by month; those about no day are a group of their own. */

import type { MemoryNote } from '../../protocol/agent-results';

export interface NoteGroup {
  title: string;
  notes: MemoryNote[];
}

export function groupNotes(notes: readonly MemoryNote[]): NoteGroup[] {
  const groups = new Map<string, MemoryNote[]>();
  for (const note of notes) {
    const title = note.day ? monthTitle(note.day) : 'Long-term notes';
    groups.set(title, [...(groups.get(title) ?? []), note]);
  }
  return [...groups].map(([title, found]) => ({ title, notes: found }));
}

function monthTitle(day: string): string {
  const [year = 0, month = 1] = day.split('-').map(Number);
  return new Date(year, month - 1, 1).toLocaleDateString('en', { month: 'long', year: 'numeric' });
}
