//! The pages: files that are part of the binary.

/// A file of the pages.
#[derive(Debug)]
pub struct Asset {
    /// Path under which it is served.
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its content.
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Asset {
            path: concat!("/", $name),
            kind: SCRIPT,
            text: include_str!(concat!("../pages/", $name)),
        }
    };
}

/// All files.
pub static ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: include_str!("../pages/index.html"),
    },
    Asset {
        path: "/console.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../pages/console.css"),
    },
    Asset { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("../pages/icon.svg") },
    script!("app.js"),
    script!("dom.js"),
    script!("api.js"),
    script!("charts.js"),
    script!("overview.js"),
    script!("streams.js"),
    script!("stream-form.js"),
    script!("messages.js"),
    script!("templates.js"),
    script!("changes.js"),
    script!("consumers.js"),
    script!("delivery.js"),
    script!("dead.js"),
    script!("publish.js"),
    script!("kv.js"),
    script!("buckets.js"),
    script!("objects.js"),
    script!("connections.js"),
    script!("accounts.js"),
    script!("cluster.js"),
    script!("server.js"),
];

/// The file of this path.
pub fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
