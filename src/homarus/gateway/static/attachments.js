// The images that are attached to the next message: chosen, pasted or dropped.

import { element } from './markdown.js';

const MAX_BYTES = 5_000_000; // of one image, as the gateway accepts it
const MAX_TOTAL_BYTES = 16_000_000; // so that the request stays below the limit of a frame
const MAX_IMAGES = 20;
const MAX_SIDE_PX = 2_400;
const TYPES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

/** The images of a composer; `onProblem(words)` is called for a file that cannot be attached. */
export class Attachments {
  #images = [];
  #list;
  #onProblem;

  constructor({ list, onProblem }) {
    this.#list = list;
    this.#onProblem = onProblem;
  }

  get count() {
    return this.#images.length;
  }

  /** Take the images out, for a message. */
  takeAll() {
    const taken = this.#images;
    this.#images = [];
    this.#draw();
    return taken;
  }

  put(images) {
    this.#images.push(...images);
    this.#draw();
  }

  async add(files) {
    for (const file of files) {
      try {
        this.put([await this.#read(file)]);
      } catch (error) {
        this.#onProblem(error.message);
      }
    }
  }

  async #read(file) {
    const name = file.name || 'image';
    if (!TYPES.has(file.type)) throw new Error(`${name}: only PNG, JPEG, GIF and WebP images can be sent.`);
    if (this.count >= MAX_IMAGES) throw new Error(`${name}: a message can have ${MAX_IMAGES} images.`);
    const blob = file.size > MAX_BYTES ? await smaller(file) : file;
    if (blob.size > MAX_BYTES)
      throw new Error(`${name} has ${megabytes(file.size)}; an image may have ${megabytes(MAX_BYTES)}.`);
    const total = this.#images.reduce((sum, image) => sum + image.size, blob.size);
    if (total > MAX_TOTAL_BYTES)
      throw new Error(`${name}: all images of a message may have ${megabytes(MAX_TOTAL_BYTES)} together.`);
    return { name, size: blob.size, url: await dataUrl(blob) };
  }

  #draw() {
    const items = this.#images.map((image) => {
      const shown = element('img');
      shown.src = image.url;
      shown.alt = image.name;
      const remove = element('button', '×');
      remove.type = 'button';
      remove.setAttribute('aria-label', `Remove ${image.name}`);
      remove.addEventListener('click', () => {
        this.#images = this.#images.filter((other) => other !== image);
        this.#draw();
      });
      return element('li', shown, remove);
    });
    this.#list.replaceChildren(...items);
    this.#list.hidden = !items.length;
  }
}

/** The images among what was pasted or dropped. */
export function imagesOf(transfer) {
  return [...(transfer?.files ?? [])].filter((file) => file.type.startsWith('image/'));
}

/** A photograph that is too large, with fewer pixels; the file itself when that does not work. */
async function smaller(file) {
  if (file.type === 'image/gif') return file; // it may move
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, MAX_SIDE_PX / Math.max(bitmap.width, bitmap.height));
    const canvas = element('canvas');
    canvas.width = Math.round(bitmap.width * scale);
    canvas.height = Math.round(bitmap.height * scale);
    canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    const made = await new Promise((done) => canvas.toBlob(done, 'image/jpeg', 0.85));
    return made ?? file;
  } catch {
    return file;
  }
}

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error('The file could not be read.'));
    reader.readAsDataURL(blob);
  });
}

function megabytes(bytes) {
  return `${(bytes / 1_000_000).toFixed(1).replace('.0', '')} MB`;
}
