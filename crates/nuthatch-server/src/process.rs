//! The life of a server process: from its command line to its exit code.

use crate::jetstream_port::{BoxFuture, JetStreamPort};
use crate::listener;
use crate::logging::Logger;
use crate::options::{Command, Invocation, Options};
use crate::private_files;
use crate::server::Server;
use crate::socket::{ListenError, bind, port_of};
use crate::system;
use crate::version::{NATS_VERSION, VERSION};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

mod banner;
mod cluster;
mod core_node;
mod embedded;
mod files;
mod foreign;
mod kill;
mod lame_duck;
mod quorum_logs;
mod reload;
mod shutdown;
mod signals;

pub use self::embedded::Embedded;
pub use self::foreign::ForeignStore;

/// Exit code of a server whose log another server has taken over, or whose certificate is not good any
/// more: one that is started again at once would take it back, or not start, so a supervisor should not.
pub const EXIT_REPLACED: u8 = 3;

/// Starts JetStream: given the server, opens the logs and returns the service with what the banner
/// says about it.
pub type StartJetStream = fn(&Arc<Server>) -> Result<StartedJetStream, String>;

/// Starts the web console, if the options say so: given a server that listens, within its runtime.
/// An error ends the start.
pub type StartConsole = fn(&Arc<Server>) -> Result<(), String>;

/// Starts the export of metrics and traces, if the options say so: given a server with JetStream, within
/// its runtime. An error ends the start.
pub type StartTelemetry = fn(&Arc<Server>) -> Result<(), String>;

/// What a server is started with beside its own parts.
#[derive(Clone, Copy)]
pub struct Services {
    /// JetStream.
    pub jetstream: StartJetStream,
    /// The web console.
    pub console: StartConsole,
    /// Export of metrics and traces.
    pub telemetry: StartTelemetry,
    /// The commit that the program was built from; empty: not known.
    pub commit: &'static str,
}

/// A JetStream service that runs.
pub struct StartedJetStream {
    /// The service.
    pub jetstream: Arc<dyn JetStreamPort>,
    /// Lines for the banner: recovered streams, how long it took, durability in force.
    pub lines: Vec<String>,
    /// What serves quorum logs, on a node of a cluster.
    pub quorum: Option<Arc<dyn QuorumLogs>>,
}

/// Serves quorum logs while this node owns them.
pub trait QuorumLogs: Send + Sync {
    /// This node keeps the log: from now on what another owner writes may be followed, so that the log opens faster here.
    fn follow(&self, number: u8);

    /// Waits until this node owns the log, opens it and serves it; returns lines for the log. `lost` is called once when
    /// this node does not own it any more, or its disk has failed: why.
    fn serve(&self, number: u8, lost: OnLost) -> BoxFuture<'_, Result<Vec<String>, String>>;

    /// True if the log is open here and has stopped over a fault: it takes no writes any more.
    fn has_stopped(&self, number: u8) -> bool;

    /// Tells nobody any more that this node serves the log, which it still does: what other nodes send goes to the next
    /// owner from then on. It is to be left soon.
    fn withdraw(&self, number: u8);

    /// Serves the log no longer and closes it: its streams have no routes here, and what waits for it ends.
    ///
    /// # Errors
    /// It did not close cleanly, as when this node owns it no more.
    fn leave(&self, number: u8) -> BoxFuture<'_, Result<(), String>>;
}

/// Hears why a log is lost.
pub type OnLost = Box<dyn Fn(&str) + Send + Sync>;

/// Why a server did not start, or what it stopped with.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A log file cannot be opened.
    #[error("could not open log file {}: {source}", file.display())]
    LogFile {
        /// Which one.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// TLS cannot be offered.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
    /// The accounts of the operator cannot be read.
    #[error("can't use the account resolver: {0}")]
    Resolver(#[from] crate::operator::StoreError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The store belongs to a nats-server.
    #[error(transparent)]
    Foreign(#[from] ForeignStore),
    /// Recovery did not end in time.
    #[error(
        "recovery did not end within the ready_timeout of {limit:?}; nothing is lost: start again \
         with a longer one or without"
    )]
    NotReady {
        /// How long it had.
        limit: Duration,
    },
    /// A signal came before it was ready. No failure.
    #[error("stopped before it was ready")]
    StoppedAtStart,
    /// The node of a quorum log did not start.
    #[error("can't start the node: {0}")]
    Cluster(String),
    /// The web console did not start.
    #[error("can't start the console: {0}")]
    Console(String),
    /// The export of metrics and traces did not start.
    #[error("can't start the export of telemetry: {0}")]
    Telemetry(String),
    /// JetStream did not start.
    #[error("Can't start JetStream: {0}")]
    JetStream(String),
    /// It has stopped, but a log did not close cleanly.
    #[error("the shutdown was not clean: {0}")]
    Shutdown(String),
    /// Another server has taken over, or a certificate that it must not run with was revoked.
    #[error("{0}")]
    Replaced(String),
    /// The system refused something basic.
    #[error("{what}: {source}")]
    System {
        /// The file.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs the command line of a server (without the program's name) until it is done.
#[must_use]
pub fn run(invocation: Invocation, args: &[String], services: Services) -> ExitCode {
    let program = match invocation {
        Invocation::Nuthatch => "nuthatch",
        Invocation::NatsServer => "nats-server",
    };
    match Options::load(invocation, args) {
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
        Ok(Command::Version) => say(&match invocation {
            Invocation::NatsServer => format!("nats-server: v{NATS_VERSION}"),
            Invocation::Nuthatch => format!("nuthatch: v{VERSION} (nats v{NATS_VERSION})"),
        }),
        Ok(Command::Help(text)) => say(&text),
        Ok(Command::TestConfig { file, options }) => test_config(program, &file, &options),
        Ok(Command::Signal { signal, target }) => match kill::send(signal, target) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{program}: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(Command::Serve(options)) => {
            let reload = reload::Source { invocation, args: args.to_vec() };
            serve(*options, program, services, reload)
        }
    }
}

/// Prints a line. A reader that has gone, such as `head`, has seen what it wanted.
fn say(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// `-t`: a file that is valid names certificates and a cluster key that can be read, and a node that may be one.
fn test_config(program: &str, file: &Path, options: &Options) -> ExitCode {
    for warning in &options.warnings {
        eprintln!("{program}: {warning}");
    }
    if let Err(error) = crate::tls::Loaded::read(options) {
        eprintln!("{program}: {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    if let Err(error) = cluster::config_of(options) {
        eprintln!("{program}: {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    say(&format!("{program}: configuration file {} is valid", file.display()))
}

fn serve(options: Options, program: &str, services: Services, reload: reload::Source) -> ExitCode {
    private_files::keep_private();
    if !options.jetstream.keys.is_empty() {
        private_files::keep_memory_private();
    }
    let log = match Logger::new(&options.log) {
        Ok(log) => log,
        Err(source) => {
            let file = options.log.file.unwrap_or_default();
            eprintln!("{program}: {}", RunError::LogFile { file, source });
            return ExitCode::FAILURE;
        }
    };
    let server = Server::new(options, log);
    system::install(&server);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(live(&server, services, reload));
            let is_cut_off =
                matches!(done, Err(RunError::NotReady { .. } | RunError::StoppedAtStart));
            if is_cut_off || server.options().cluster.is_some() {
                // The start, or the wait of a node for the log, goes on in a detached thread until the process
                // ends: what it cuts off or writes is as safe as after a kill.
                runtime.shutdown_background();
            }
            done
        }
        Err(source) => Err(RunError::System { what: "can't start the runtime", source }),
    };
    match done {
        Ok(()) | Err(RunError::StoppedAtStart) => ExitCode::SUCCESS,
        Err(error) => {
            server.log.log(crate::logging::Level::Fatal, format_args!("{error}"));
            if server.options().log.file.is_some() {
                eprintln!("{program}: {error}");
            }
            // What fails for another reason would fail again.
            let is_node = server.cluster.get().is_some();
            let anew = is_node && matches!(error, RunError::Replaced(_));
            match error {
                _ if anew => {
                    server.log.info(format_args!("Starting again as a keeper of the quorum log"));
                    let error = cluster::restart();
                    eprintln!("{program}: starting again: {error}");
                    ExitCode::FAILURE
                }
                RunError::Replaced(_) => ExitCode::from(EXIT_REPLACED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

async fn live(
    server: &Arc<Server>,
    services: Services,
    reload: reload::Source,
) -> Result<(), RunError> {
    server.set_runtime(tokio::runtime::Handle::current());
    server.set_reload(Box::new(reload));
    let mut signals = signals::Signals::new()
        .map_err(|source| RunError::System { what: "can't receive signals", source })?;
    // A start may take as long as the recovery of the logs, or the wait for other nodes.
    let started = tokio::select! {
        started = start(server, services, Clients::Listen) => started,
        name = signals.stop() => return stopped_at_start(server, name),
    };
    let mut running = match started {
        Ok(running) => running,
        Err(error) => return Err(error),
    };
    let told = tokio::select! {
        told = signals::until_stopped(server, &mut signals, &running.accepting) => told,
        error = cluster::failed(&mut running.node) => {
            let stopped = stop(server, &running).await;
            // A node that lost the log would begin again.
            return if signals.was_stopped_meanwhile().await { stopped } else { Err(error) };
        }
    };
    // What happens from here on is no reason any more.
    let replaced = server.fatal.reason();
    let stopped = stop(server, &running).await;
    match replaced {
        None => stopped,
        // It was told to end beside: the log is another node's, so there is nothing to close.
        Some(_) if told || signals.was_stopped_meanwhile().await => Ok(()),
        Some(why) => Err(RunError::Replaced(why)),
    }
}

/// What a server that runs consists of, beside its connections.
struct Running {
    accepting: JoinHandle<()>,
    exchanging: JoinHandle<()>,
    publishing: JoinHandle<()>,
    tracing: JoinHandle<()>,
    monitoring: JoinHandle<()>,
    ports: files::Ports,
    /// What this server does as a node of a cluster, if it is one.
    node: Option<cluster::NodeTask>,
}

/// How clients come to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    /// To its port, and in the process.
    Listen,
    /// In the process only.
    InProcess,
}

/// Starts everything, in order.
async fn start(
    server: &Arc<Server>,
    services: Services,
    clients: Clients,
) -> Result<Running, RunError> {
    banner::starting(server, services.commit);
    make_token(server)?;
    let node = cluster::config(server)?;
    crate::operator_service::start(server)?;
    let options = server.options();
    let tls = crate::tls::Loaded::read(&options)?;
    use crate::ocsp_service::STAPLE_START_TIMEOUT;
    crate::ocsp_service::start(server, &tls, STAPLE_START_TIMEOUT).await?;
    tls.install(&server.tls);
    let monitor = crate::monitor::bind_all(&options).await?;
    let listener = match clients {
        Clients::Listen => Some(bind("client port", &options.host, options.port).await?),
        Clients::InProcess => None,
    };
    let port = listener.as_ref().map_or(0, port_of);
    server.client_port.store(port, Ordering::Relaxed);
    server.monitor_port.store(monitor.http_port().unwrap_or(0), Ordering::Relaxed);
    server.monitor_https_port.store(monitor.https_port().unwrap_or(0), Ordering::Relaxed);
    let websocket = bind_websocket(server, &options).await?;
    let leafs = bind_leafs(server, &options).await?;
    let node = node.map(|config| cluster::prepare(server, &config)).transpose()?;
    let ports = files::Ports::new(server, &monitor);
    let monitoring = crate::monitor::serve(server.clone(), monitor);
    if options.jetstream.enabled {
        foreign::check(&options.jetstream.store_dir)?;
    }
    if options.jetstream.enabled && node.is_none() {
        attach_jetstream(server, services.jetstream).await?;
    }
    banner::websocket(server);
    banner::leafs(server);
    banner::clients(server, listener.is_some());
    if options.tls.is_some() && !options.allow_non_tls {
        server.log.info(format_args!("TLS required for client connections"));
    }
    let accepting = tokio::spawn(accept_all(server.clone(), listener, websocket));
    let exchanging = tokio::spawn(crate::leaf_service::serve(server.clone(), leafs));
    server.set_listening();
    let node = node.map(|node| cluster::NodeTask::begin(server, node, services.jetstream));
    (services.console)(server).map_err(RunError::Console)?;
    (services.telemetry)(server).map_err(RunError::Telemetry)?;
    files::write_pid(server);
    ports.write(server);
    let publishing = tokio::spawn(system::events::publish_regularly(server.clone()));
    let tracing = tokio::spawn(crate::trace_service::serve(server.clone()));
    server.log.info(format_args!("Server is ready"));
    Ok(Running { accepting, exchanging, publishing, tracing, monitoring, ports, node })
}

/// Stops everything, in order. A quorum log goes to another node when it is closed, and then the node ends.
async fn stop(server: &Arc<Server>, running: &Running) -> Result<(), RunError> {
    running.publishing.abort();
    running.tracing.abort();
    running.accepting.abort();
    running.monitoring.abort();
    cluster::leave_logs(server).await;
    let stopped = shutdown::shutdown(server).await;
    crate::ocsp_service::save(server);
    // What another node owns by now cannot be closed here, and need not be.
    let is_elsewhere = cluster::is_elsewhere(server);
    let ended = match &running.node {
        None => Ok(()),
        Some(node) => node.end(server).await,
    };
    if let Err(why) = &ended {
        server.log.error(format_args!("The node has not ended: {why}"));
    }
    running.exchanging.abort();
    running.ports.remove(server);
    if is_elsewhere { Ok(()) } else { stopped }.and(ended.map_err(RunError::Shutdown))
}

/// A signal has stopped a server that was not ready yet. What it was doing is given up, and is as safe as
/// after a kill: no client has been answered.
fn stopped_at_start(server: &Arc<Server>, name: &str) -> Result<(), RunError> {
    server.log.info(format_args!("Trapped {name:?} signal"));
    server.log.info(format_args!("Server Exiting before it was ready.."));
    Err(RunError::StoppedAtStart)
}

/// Keeps the token that was made for want of one, and says it this once.
fn make_token(server: &Server) -> Result<(), RunError> {
    let options = server.options();
    let made = files::keep_token(&options.auth)
        .map_err(|source| RunError::System { what: "can't keep the token of clients", source })?;
    if let (true, Some(token), Some(path)) = (made, &options.auth.token, &options.auth.token_file) {
        let (token, path) = (token.expose(), path.display());
        server
            .log
            .info(format_args!("No token of clients was there: made {token}, kept in {path}"));
    }
    Ok(())
}

/// Starts JetStream and attaches it to the server, whose clients may be connected already.
async fn attach_jetstream(
    server: &Arc<Server>,
    start_jetstream: StartJetStream,
) -> Result<Option<Arc<dyn QuorumLogs>>, RunError> {
    let started = start_in_time(server, start_jetstream, server.options().ready_timeout).await?;
    server.set_jetstream(started.jetstream);
    if server.options().jetstream.enabled {
        banner::jetstream(server, &started.lines);
    }
    Ok(started.quorum)
}

/// Starts JetStream, which may take long, within the time that the configuration gives it.
async fn start_in_time(
    server: &Arc<Server>,
    start_jetstream: StartJetStream,
    limit: Option<Duration>,
) -> Result<StartedJetStream, RunError> {
    let starter = server.clone();
    let starting = tokio::task::spawn_blocking(move || start_jetstream(&starter));
    let started = match limit {
        None => starting.await,
        Some(limit) => {
            tokio::time::timeout(limit, starting).await.map_err(|_| RunError::NotReady { limit })?
        }
    };
    started.map_err(|error| RunError::JetStream(error.to_string()))?.map_err(RunError::JetStream)
}

async fn bind_websocket(
    server: &Server,
    options: &Options,
) -> Result<Option<TcpListener>, RunError> {
    let Some(websocket) = &options.websocket else { return Ok(None) };
    let listener = bind("websocket port", &websocket.host, websocket.port).await?;
    server.websocket_port.store(port_of(&listener), Ordering::Relaxed);
    Ok(Some(listener))
}

async fn bind_leafs(server: &Server, options: &Options) -> Result<Option<TcpListener>, RunError> {
    let Some((leafs, port)) = options.leafnodes.as_ref().and_then(|l| Some((l, l.port?))) else {
        return Ok(None);
    };
    let listener = bind("leafnode port", &leafs.host, port).await?;
    server.leafs.port.store(port_of(&listener), Ordering::Relaxed);
    Ok(Some(listener))
}

async fn accept_all(
    server: Arc<Server>,
    clients: Option<TcpListener>,
    websocket: Option<TcpListener>,
) {
    let clients = async {
        if let Some(listener) = clients {
            listener::accept(server.clone(), listener).await;
        }
    };
    let websocket = async {
        if let Some(listener) = websocket {
            crate::listener::websocket::accept(server.clone(), listener).await;
        }
    };
    tokio::join!(clients, websocket);
}
