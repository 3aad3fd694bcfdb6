import './Field.css';
import type { ComponentChildren, JSX } from 'preact';
import { useId } from 'preact/hooks';

export interface FieldIds {
  id: string;
  'aria-describedby': string | undefined;
  'aria-invalid': boolean | undefined;
}

interface Props {
  label: string;
  hint?: ComponentChildren;
  error?: string;
  /** Renders the control with the ids that join it with its label and its texts. */
  children: (ids: FieldIds) => ComponentChildren;
}

/** A labelled control: `<Field label="Name">{(ids) => <input class="input" {...ids} />}</Field>`. */
export function Field({ label, hint, error, children }: Props): JSX.Element {
  const id = useId();
  const described = [hint !== undefined && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ');
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, 'aria-describedby': described || undefined, 'aria-invalid': error ? true : undefined })}
      {hint !== undefined && (
        <p id={`${id}-hint`} class="field-hint">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} class="field-error" role="alert">
          {error}
        </p>
      )}
    </div>
  );
}
