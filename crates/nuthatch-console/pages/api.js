// Talking to the server, and the address of the page.

export const session = { user: null, account: null, token: null, read_only: false, server_read_only: false, role: "admin", sees_server: false, server: "", version: "", needs_login: true };

export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

let onExpired = () => {};
export const whenExpired = (f) => { onExpired = f; };

export async function api(method, path, body) {
  const headers = {};
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    if (session.token) headers["X-Console-Token"] = session.token;
  }
  let response;
  try {
    response = await fetch(`/api/${path}`, {
      method, headers, body: method === "GET" ? undefined : JSON.stringify(body ?? {}), credentials: "same-origin",
    });
  } catch {
    throw new ApiError(0, "The server does not answer.");
  }
  const found = await response.json().catch(() => ({ error: `status ${response.status}` }));
  if (response.ok) return found;
  if (response.status === 401 && path !== "login") onExpired();
  throw new ApiError(response.status, found.error ?? `status ${response.status}`);
}

const ANEW_MS = 5000;
const BUSY_MS = 500;

/**
 * Shows what a path answers, at once and whenever that changes, until the function that it returns is called. `path`
 * is asked anew for each connection: it knows how far the page is. Nothing is asked while the page is hidden, and
 * nothing shown while it is `busy`: that waits.
 */
export function follow(path, show, failed, busy = () => false) {
  let source = null;
  let timer;
  let over = false;
  const waiting = [];
  const deliver = () => {
    if (over || !waiting.length) return;
    if (busy()) { setTimeout(deliver, BUSY_MS); return; }
    for (const found of waiting.splice(0)) show(found);
  };
  const hear = (found) => { waiting.push(found); deliver(); };
  const close = () => { source?.close(); source = null; clearTimeout(timer); };
  const open = () => {
    if (over || source || document.hidden) return;
    source = new EventSource(`/api/follow/${path()}`);
    source.onmessage = (event) => hear(JSON.parse(event.data));
    source.onerror = async () => {
      // Otherwise the browser connects again by itself.
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      try {
        // Too many are followed, or there is something wrong, which this says.
        hear(await api("GET", path()));
        timer = setTimeout(open, ANEW_MS);
      } catch (error) { if (!over) { over = true; failed(error); } }
    };
  };
  const turn = () => { if (document.hidden) close(); else open(); };
  document.addEventListener("visibilitychange", turn);
  open();
  return () => { over = true; close(); document.removeEventListener("visibilitychange", turn); };
}

export const part = encodeURIComponent;
export const params = (values) => {
  const set = Object.entries(values).filter(([, v]) => v !== undefined && v !== null && v !== "");
  return set.length ? `?${set.map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&")}` : "";
};

/** `#/streams/ORDERS?sort=bytes` taken apart. */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const decode = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  return { parts: path.split("/").filter(Boolean).map(decode), query: Object.fromEntries(new URLSearchParams(query)) };
}

export const link = (parts, query = {}) => `#/${parts.map(part).join("/")}${params(query)}`;

/** Changes the query of the address, and shows the page anew. */
export function go(parts, query = {}) { location.hash = link(parts, query); }
export function adjust(changes) {
  const { parts, query } = place();
  go(parts, { ...query, ...changes });
}
