/** What was edited and not saved: the browser asks before it forgets it. */

const names = new Set<string>();

export function setUnsaved(name: string, isUnsaved: boolean): void {
  if (isUnsaved) names.add(name);
  else names.delete(name);
}

addEventListener('beforeunload', (event) => {
  if (names.size) event.preventDefault();
});
