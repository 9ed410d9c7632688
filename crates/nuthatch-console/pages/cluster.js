// The cluster: its nodes, its quorum logs, and who has how much of each.

import { api, follow } from "./api.js";
import { badge, clear, count, failure, h, span, table } from "./dom.js";

/** Nodes with the connections of this one to them: each account has one of its own. */
function nodesOf(found) {
  const nodes = new Map();
  const know = (name) => nodes.get(name) ?? nodes.set(name, { name, owns: [], accounts: 0, in: 0, out: 0, connected: name === found.node }).get(name);
  for (const of of found.nodes) Object.assign(know(of.name), of);
  for (const log of found.logs) {
    for (const r of log.replicas) { const node = know(r.node); node.connected ||= r.connected; node.silent_ms = r.silent_ms; }
    if (log.owner) know(log.owner).owns.push(log.name);
  }
  for (const r of found.routes ?? []) {
    Object.assign(know(r.remote_name), { address: `${r.ip}:${r.port}`, rtt: r.rtt, uptime: r.uptime, connected: true });
    const node = know(r.remote_name);
    node.accounts += 1; node.in += r.in_msgs; node.out += r.out_msgs;
  }
  return [...nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A duration without the digits that nobody reads. */
const short = (text) => (text ?? "–").replace(/(\.\d)\d+/, "$1");

function nodeTable(found) {
  const mine = (r) => r.name === found.node;
  const columns = [
    { name: "Node", wide: true, cell: (r) => [h("span.name", r.name), " ", mine(r) && badge("this one"), r.spare && badge("spare"), r.drain && badge(r.drain, r.drain === "draining" && "warn"), r.turned_away && badge("turned away", "warn"), !r.connected && badge("away", "warn")] },
    { name: "Zone", cell: (r) => h("span.nowrap", r.zone ?? "–") },
    { name: "Owns", cell: (r) => h("span.name.nowrap", r.owns.join(", ") || "–") },
    { name: "Address", cell: (r) => h("span.nowrap", r.address ?? "–") },
    { name: "Accounts", num: true, cell: (r) => (mine(r) ? "–" : count(r.accounts)) },
    { name: "Round trip", num: true, cell: (r) => short(r.rtt) },
    { name: "Up for", num: true, cell: (r) => short(r.uptime) },
    { name: "Messages in", num: true, cell: (r) => (mine(r) ? "–" : count(r.in)) },
    { name: "Messages out", num: true, cell: (r) => (mine(r) ? "–" : count(r.out)) },
  ];
  return table(columns, nodesOf(found), { label: "Nodes", empty: "No other node is connected." });
}

function lacks(log, r) {
  if (!r.connected) return badge(r.silent_ms === null ? "never heard" : `silent for ${span(r.silent_ms)}`, "warn");
  if (r.node === log.owner) return badge("owner");
  if (r.lag === null) return h("span.dim", "its owner knows");
  return r.lag > 16 ? badge(`lacks ${count(r.lag)}`, "warn") : "all";
}

function logSection(found) {
  return (log) => {
    const columns = [
      { name: "Node", wide: true, cell: (r) => h("span.name", r.node) },
      { name: "Has", cell: (r) => lacks(log, r) },
      { name: "May own it", cell: (r) => (r.fit ? "yes" : badge("no: its disk or clock", "warn")) },
    ];
    const there = log.replicas.filter((r) => r.connected).length;
    return h("section", h("h2", h("span.name", log.name), " ", !log.owner && badge("no owner", "warn"), there < found.quorum && badge("no majority", "warn")),
      h("p.dim", log.owner ? ["Owned by ", h("b.name", log.owner)] : "Nothing is stored in it now", `, epoch ${count(log.epoch)}`, log.owner !== log.preferred && [", meant for ", h("b.name", log.preferred)], "."),
      table(columns, log.replicas, { label: `Replicas of ${log.name}`, empty: "Nobody keeps it." }));
  };
}

const show = (found) => {
  if (!found) return [h("h1", "Cluster"), h("p.dim", "This server is alone: it is no node of a cluster.")];
  const there = nodesOf(found).filter((node) => node.connected).length;
  return [
    h("h1", "Cluster", h("small.beside", ` ${found.name}`)),
    h("div.tiles", [["Nodes there", `${there} of ${found.size}`], ["Needed", count(found.quorum)], ["Quorum logs", count(found.logs.length)], ["Without owner", count(found.logs.filter((log) => !log.owner).length)]].map(([l, v]) => h("div.tile", h("span", l), h("b", v)))),
    found.states.map((state) => h("p", badge("note", "warn"), " ", state)),
    h("p.dim", found.may_stop ? "Any one node may be stopped, as far as this node knows: how far copies are the owner of each log knows." : "Stop no node that is there now: one is away or behind, a log has no owner, or the nodes change."),
    h("h2.apart", "Nodes"), nodeTable(found),
    h("h2.apart", "Quorum logs"), h("div.columns", found.logs.map(logSection(found))),
    h("p.dim", `As the node ${found.node} sees it. What is acknowledged is on a majority of the nodes. What a replica lacks is counted in entries: syncs of the log.`),
  ];
};

export async function cluster(content) {
  clear(content, show(await api("GET", "cluster")));
  return follow(() => "cluster", (found) => clear(content, show(found)), (error) => clear(content, failure(error)), () => content.contains(document.activeElement));
}
