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
