// Requests to the server. Addresses are relative: the token is part of the page's own address.

// A name for this page, not for the browser: a copy of the tab is somebody else.
const client = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

// `?who=ada` at the end of the address names who answers on this page.
const who = new URLSearchParams(location.search).get("who");

async function post(path, content, options = {}) {
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ client, ...content });
  const response = await fetch(path, { method: "POST", headers, body, ...options }).catch(() => {
    throw new Error("Not saved: the server does not answer. Start it again and open its new address");
  });
  const reply = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(reply.error || `the server said ${response.status}`);
  return reply;
}

/** The items that are this page's to answer, at most `count`, and the progress of all. */
export const take = (count) => post("api/take", { count });

/** Store answers: `[{index, answer, was}]`. When this returns, those in `saved` are on the disk. */
export const store = (answers) => post("api/answers", { answers, who });

/** Keep this page's items its own while it is open. */
export const renew = () => post("api/renew", {});

/** Give this page's items back, also while it is being closed. */
export const release = () => post("api/release", {}, { keepalive: true }).catch(() => {});

export async function neighbors(index) {
  const response = await fetch(`api/neighbors/${index}`);
  if (!response.ok) throw new Error(`the server said ${response.status}`);
  return response.json();
}
