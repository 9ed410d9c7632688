//! The web console beside a server: what it is told of the process, and where it listens.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nuthatch_console::{
    Advisory, BoxFuture, Cluster, Facts, Findings, Host, ReloadPreview, Sample, Setting, Settings,
    User,
};
use nuthatch_server::advisories::AdvisoryListener;
use nuthatch_server::close_reason::CloseReason;
use nuthatch_server::jetstream_port::JsHealth;
use nuthatch_server::monitor::{Query, document};
use nuthatch_server::options::{SyncPolicy, Written, written};
use nuthatch_server::server::Server;
use serde_json::{Map, Value};

mod findings;
mod quorum;
mod sample;
mod users;

/// Starts the console of a server that listens for clients, if its options say so.
///
/// # Errors
/// Its address was asked for and cannot be listened on, or is open to everybody.
pub fn start(server: &Arc<Server>) -> Result<(), String> {
    let options = server.options();
    let console = &options.console;
    if !console.enabled {
        return Ok(());
    }
    if let Some(why) = needs_tls(server) {
        if console.by_default {
            server.log.info(format_args!("No console: {why}"));
            return Ok(());
        }
        return Err(why.to_owned());
    }
    if let Some(why) = options.console_opens_up() {
        return Err(why);
    }
    let settings = Settings {
        host: console.host.clone(),
        port: console.port,
        read_only: console.read_only,
        hosts: console.hosts.clone(),
    };
    let is_exposed = options.console_exposure().is_some() && !console.read_only;
    let process = Arc::new(Process { server: server.clone(), is_exposed });
    match nuthatch_console::start(settings, process) {
        Ok(address) => {
            let note = if console.read_only { ", read-only" } else { "" };
            server.log.info(format_args!("Console on http://{address}/{note}"));
            Ok(())
        }
        Err(error) if console.by_default => {
            server.log.info(format_args!("No console: {error}"));
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Why the console cannot log users in here; `None`: it can.
fn needs_tls(server: &Server) -> Option<&'static str> {
    let options = server.options();
    (options.tls.is_some() && !options.allow_non_tls)
        .then_some("clients must use TLS, which the console does not do yet")
}

/// The process of a server, as the console sees it.
struct Process {
    server: Arc<Server>,
    /// Others than this machine reach the console, and it changes things.
    is_exposed: bool,
}

/// Hands advisories on.
struct Listener<F>(F);

impl<F: Fn(Advisory) + Send + Sync> AdvisoryListener for Listener<F> {
    fn hear(&self, account: &str, subject: &[u8], body: &[u8]) {
        let subject = String::from_utf8_lossy(subject).into_owned();
        (self.0)(Advisory { account: account.to_owned(), subject, body: body.to_vec() });
    }
}

impl Host for Process {
    fn facts(&self) -> Facts {
        let server = &self.server;
        let options = server.options();
        Facts {
            name: server.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: server.uptime_ms(),
            troubles: troubles(server),
            durability: durability(server),
            needs_login: options.has_users() && options.auth.no_auth_user.is_none(),
            is_open: !options.has_users(),
            system_account: server.accounts.system().name.clone(),
        }
    }

    fn client_url(&self) -> String {
        let server = &self.server;
        let host = &server.options().host;
        let port = server.client_port.load(Ordering::Relaxed);
        match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) if address.is_unspecified() => {
                format!("nats://127.0.0.1:{port}")
            }
            Ok(IpAddr::V6(address)) if address.is_unspecified() => format!("nats://[::1]:{port}"),
            Ok(IpAddr::V6(address)) => format!("nats://[{address}]:{port}"),
            _ => format!("nats://{host}:{port}"),
        }
    }

    fn log(&self, line: &str) {
        self.server.log.info(format_args!("{line}"));
    }

    fn closed(&self) -> Option<String> {
        let options = self.server.options();
        let lets_everybody_in = !options.has_users() || options.auth.no_auth_user.is_some();
        (self.is_exposed && lets_everybody_in).then(|| {
            "since a reload the server asks nobody who he is, and others than this machine reach \
             the console"
                .to_owned()
        })
    }

    fn sample(&self) -> BoxFuture<'_, Sample> {
        Box::pin(sample::take(&self.server))
    }

    fn listen(&self, advisories: tokio::sync::mpsc::Sender<Advisory>) {
        // Without room it is lost: engines do not wait.
        let hand_on = move |advisory| drop(advisories.try_send(advisory));
        self.server.accounts.advisories.listen(Arc::new(Listener(hand_on)));
    }

    fn document<'a>(
        &'a self,
        path: &'a str,
        options: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move {
            let query = Query::from_options(options);
            document(&self.server, path, &query, |found| found).await
        })
    }

    fn waiting_inboxes<'a>(
        &'a self,
        account: &'a str,
        stream: &'a str,
        consumer: &'a str,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            self.server.jetstream().view().waiting_inboxes(account, stream, consumer).await
        })
    }

    fn cluster(&self) -> Option<Cluster> {
        quorum::cluster(&self.server)
    }

    fn findings(&self) -> Vec<Findings> {
        findings::all(&self.server)
    }

    fn kick(&self, connection: u64) -> bool {
        let found = self.server.connections.get(connection);
        let found = found.inspect(|client| client.close(CloseReason::Kicked, None));
        found.is_some()
    }

    fn users(&self) -> Vec<User> {
        users::all(&self.server.options())
    }

    fn settings(&self) -> Result<Vec<Setting>, String> {
        let options = self.server.options();
        let Some(file) = &options.config_file else { return Ok(Vec::new()) };
        let setting = |w: Written| Setting { key: w.key, place: w.place, value: w.value };
        Ok(written(file)?.into_iter().map(setting).collect())
    }

    fn preview_reload(&self) -> Result<ReloadPreview, String> {
        let plan = self.server.preview_reload()?;
        let names = |keys: Vec<&'static str>| keys.into_iter().map(str::to_owned).collect();
        Ok(ReloadPreview { now: names(plan.now), restart: names(plan.restart) })
    }
}

/// What is wrong, one sentence each.
fn troubles(server: &Server) -> Vec<String> {
    if !server.options().has_jetstream() {
        return vec!["JetStream is off: there are no streams.".to_owned()];
    }
    let view = server.jetstream().view();
    let mut found = Vec::new();
    match view.health() {
        JsHealth::Ok => {}
        JsHealth::Starting => found.push("JetStream is starting: recovery is running.".to_owned()),
        JsHealth::Broken(why) => found.push(format!("JetStream is broken: {why}.")),
    }
    for log in view.logs() {
        let (name, stats) = (&log.name, &log.stats);
        if stats.failed != 0 {
            found.push(format!("The log {name} has stopped: nothing more is stored in it."));
        }
        if stats.space != 0 {
            found.push(format!("The medium of the log {name} is full or nearly full."));
        }
        if stats.damaged != 0 {
            let count = stats.damaged;
            let s = if count == 1 { "" } else { "s" };
            found.push(format!("The log {name} has {count} damaged place{s}: see Storage."));
        }
        if stats.read_errors != 0 {
            let count = stats.read_errors;
            found.push(format!("The log {name} could not read what it has stored, {count} times."));
        }
    }
    found.extend(quorum::troubles(server));
    if server.lame_duck.load(Ordering::Relaxed) {
        found.push("The server is a lame duck: it is closing its connections.".to_owned());
    }
    found
}

/// What an acknowledgement means, log by log.
fn durability(server: &Server) -> Vec<(String, String)> {
    let locations = server.logs.locations();
    let words = |mode: &str, sync: &SyncPolicy| match (mode, sync) {
        ("object", _) => "stored in the bucket before every acknowledgement".to_owned(),
        (_, SyncPolicy::Always) => "fsync before every acknowledgement".to_owned(),
        (_, SyncPolicy::Every(interval)) => {
            format!("fsync every {interval:?}: a power cut may lose what came since")
        }
        (_, SyncPolicy::Never) => "no fsync: a power cut may lose what was acknowledged".to_owned(),
    };
    locations.iter().map(|log| (log.name.clone(), words(log.mode, &log.sync))).collect()
}
