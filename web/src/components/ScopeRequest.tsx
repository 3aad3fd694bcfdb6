import type { JSX } from 'preact';
import { ALL_SCOPES, requestScopes } from '../gateway/credentials';
import { connect } from '../gateway/gateway';
import { Button } from './Button';
import { EmptyState } from './EmptyState';

const NAMES: Readonly<Record<string, string>> = {
  'operator.admin': 'administration',
  'operator.approvals': 'approvals',
  'operator.pairing': 'pairing',
  'operator.write': 'writing',
  'operator.read': 'reading',
};

/** Shown where this browser lacks a permission: it can be requested, and a person approves it. */
export function ScopeRequest({ scope }: { scope: string }): JSX.Element {
  const request = (): void => {
    requestScopes(ALL_SCOPES);
    connect();
  };
  return (
    <EmptyState
      icon="key"
      title={`This browser has no permission for ${NAMES[scope] ?? scope}`}
      action={
        <Button kind="primary" onClick={request}>
          Request permission
        </Button>
      }
    >
      The request appears on the gateway’s machine, in its control UI and in “homarus devices list”.
    </EmptyState>
  );
}
