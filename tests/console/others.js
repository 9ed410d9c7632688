/** Steps on servers of their own: one whose store the doctor has mended, and the nodes of a cluster. */
"use strict";

const assert = require("node:assert/strict");

module.exports = ({ at, readOnlyUrl, clusterUrl, lastNode, view }) => ({
  async "what the doctor said when it last mended a log is shown"({ page, shoot }) {
    const reader = at(page, readOnlyUrl);
    await reader.open("#/storage", "Findings");
    await reader.see("and mended it:");
    await reader.see("frame-flipped");
    await reader.see("set back; nothing is lost");
    await shoot("findings");
  },

  async "a cluster: its nodes, its logs, and a node that goes"({ page, shoot }) {
    const visitor = at(page, clusterUrl);
    await visitor.open("#/cluster", "3 of 3");
    for (const log of ["default", "default-1", "default-2"]) await visitor.see(log);
    await visitor.gone("no owner");
    await visitor.see("Any one node may be stopped");
    await shoot("cluster");
    process.kill(Number(lastNode), "SIGKILL");
    await visitor.see("2 of 3");
    await visitor.see("away");
    await visitor.see("Stop no node that is there now");
    await shoot("cluster-away");
    await page.page.setViewport({ width: 320, height: 700 });
    const [wide, window] = await page.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= window, `the page is ${wide} wide in ${window}`);
    await page.page.setViewport(view);
    await visitor.open("#/overview", "The node n3 does not answer");
  },
});
