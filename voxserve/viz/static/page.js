// What the widgets of one browser page share.

/** Names this page in messages to the kernel: two tabs can show the same widget. */
export const PAGE = (globalThis.__voxservePage ??= Math.random().toString(36).slice(2));

/** Tells the kernel something; false when it is gone, which the timeline shows. */
export function tell(model, message, buffers = []) {
  try {
    model.send({ page: PAGE, ...message }, undefined, buffers);
    return true;
  } catch {
    return false;
  }
}
