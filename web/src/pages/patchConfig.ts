import { call } from '../gateway/gateway';

type Tree = Record<string, unknown>;

/**
 * Change the config: the patch is made of the file as it is now, and refused when the file changes
 * before it is written. Null removes a key; a list replaces the old one.
 */
export async function patchConfig(makePatch: (parsed: Readonly<Tree>) => Tree): Promise<void> {
  const { parsed, hash } = await call('config.get', {});
  await call('config.patch', { raw: JSON.stringify(makePatch(parsed)), ...(hash ? { baseHash: hash } : {}) });
}
