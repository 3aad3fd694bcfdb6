import { oneLine } from '../markdown/text';

const WORDS: Readonly<Record<string, string>> = {
  'operator.admin': 'change everything',
  'operator.read': 'read',
  'operator.write': 'chat',
  'operator.approvals': 'approve tool calls',
  'operator.pairing': 'pair devices',
};

/** Return what scopes allow, in words. */
export function describeScopes(scopes: readonly string[]): string {
  if (!scopes.length) return 'nothing';
  if (scopes.includes('operator.admin')) return 'change everything: settings, approvals and devices';
  return scopes.map((scope) => WORDS[scope] ?? oneLine(scope, 40)).join(', ');
}
