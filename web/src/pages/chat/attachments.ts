/** Files for a message: chosen, pasted, dropped or recorded. */

import { describeError } from '../../gateway/errors';
import { hello } from '../../gateway/gateway';
import { formatBytes } from '../../state/format';
import type { Attachment } from './outbox';

const IMAGES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);
const DEFAULT_IMAGE_BYTES = 5_000_000;
const DEFAULT_FILE_BYTES = 15_000_000;
const MAX_TOTAL_BYTES = 17_000_000; // so that the request stays below the limit of a frame
const MAX_FILES = 20;
const MAX_SIDE_PX = 2_400;

/** Return the files that can be sent as attachments, and what a person reads about the others. */
export async function readFiles(
  files: Iterable<File>,
  present: readonly Attachment[],
): Promise<{ read: Attachment[]; problems: string[] }> {
  const read: Attachment[] = [];
  const problems: string[] = [];
  for (const file of files)
    try {
      read.push(await readFile(file, [...present, ...read]));
    } catch (error) {
      problems.push(describeError(error));
    }
  return { read, problems };
}

async function readFile(file: File, present: readonly Attachment[]): Promise<Attachment> {
  const name = file.name || 'file';
  const limits = hello.value?.policy.attachments;
  const isImage = IMAGES.has(file.type);
  const maxBytes = isImage ? (limits?.maxImageBytes ?? DEFAULT_IMAGE_BYTES) : (limits?.maxBytes ?? DEFAULT_FILE_BYTES);
  if (present.length >= MAX_FILES) throw new Error(`${name}: a message can have ${MAX_FILES} files.`);
  const blob = isImage && file.size > maxBytes ? await shrink(file) : file;
  if (blob.size > maxBytes) throw new Error(`${name} has ${formatBytes(file.size)}; it may have ${formatBytes(maxBytes)}.`);
  const total = present.reduce((sum, { bytes }) => sum + bytes, blob.size);
  if (total > MAX_TOTAL_BYTES) throw new Error(`${name}: all files of a message may have ${formatBytes(MAX_TOTAL_BYTES)} together.`);
  return { name, mime: blob.type || 'application/octet-stream', bytes: blob.size, url: await dataUrl(blob) };
}

/** Return a photograph that is too large with fewer pixels; the file itself when that fails. */
async function shrink(file: File): Promise<Blob> {
  if (file.type === 'image/gif') return file; // it may move
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, MAX_SIDE_PX / Math.max(bitmap.width, bitmap.height));
    const canvas = new OffscreenCanvas(Math.round(bitmap.width * scale), Math.round(bitmap.height * scale));
    canvas.getContext('2d')?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return await canvas.convertToBlob({ type: 'image/jpeg', quality: 0.85 });
  } catch {
    return file;
  }
}

function dataUrl(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(new Error('The file could not be read.'));
    reader.readAsDataURL(blob);
  });
}
