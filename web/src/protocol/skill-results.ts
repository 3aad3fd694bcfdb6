/** What the methods of skills answer. */

export interface SkillRow {
  name: string;
  description: string;
  skillKey: string;
  source: string;
  bundled: boolean;
  eligible: boolean;
  disabled: boolean;
  blockedByAllowlist: boolean;
  primaryEnv?: string;
  homepage?: string;
  always?: boolean;
  filePath?: string;
  missing: Record<string, string[]>;
  requirements: Record<string, string[]>;
  reasons: { gate: string; message: string; fix: string }[];
  install: { id: string; kind: string; label: string; bins: string[] }[];
  actions?: { name: string; tool: string; description: string; effects: string[] }[];
  allowedTools?: string[];
}

export interface HubSkill {
  slug: string;
  displayName: string;
  summary: string;
  version: string;
  ownerHandle: string;
  score: number;
}

export interface SkillFinding {
  rule: string;
  severity: 'block' | 'warn' | 'info';
  file: string;
  line: number;
  message: string;
  excerpt: string;
}

export interface HubSkillDetail {
  slug: string;
  name: string;
  description: string;
  version: string;
  ownerHandle: string;
  registry: string;
  changelog: string;
  fingerprint: string;
  files: { path: string; size: number }[];
  asksFor: Record<string, string>;
  findings: SkillFinding[];
}

export interface SkillResults {
  'skills.add': { ok: boolean; slug: string; version: string; path: string };
  'skills.detail': HubSkillDetail;
  'skills.install': { ok: boolean; message: string; stdout?: string; stderr?: string };
  'skills.search': { results: HubSkill[] };
  'skills.status': { skills: SkillRow[]; problems: { path: string; message: string; fix?: string }[] };
  'skills.update': { ok: boolean; skillKey: string };
}
