/** Which skills a list shows. */

import type { SkillRow } from '../../protocol/skill-results';

export type SkillFilter = 'all' | 'ready' | 'missing' | 'disabled';

export function skillState(skill: SkillRow): 'ready' | 'missing' | 'disabled' {
  if (skill.disabled) return 'disabled';
  return skill.eligible && !skill.blockedByAllowlist ? 'ready' : 'missing';
}

export function countStates(skills: readonly SkillRow[]): Record<'ready' | 'missing' | 'disabled', number> {
  const counts = { ready: 0, missing: 0, disabled: 0 };
  for (const skill of skills) counts[skillState(skill)] += 1;
  return counts;
}

export function matchesSkill(skill: SkillRow, filter: SkillFilter, search: string): boolean {
  if (filter !== 'all' && skillState(skill) !== filter) return false;
  return `${skill.name} ${skill.description}`.toLowerCase().includes(search.trim().toLowerCase());
}
