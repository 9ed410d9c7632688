//! RabbitMQ, with an Erlang port mapper of its own so that nothing is left behind.

use std::path::{Path, PathBuf};

use super::{Launch, Site, find_program};
use crate::harness::BenchError;

/// Debian's start script switches users; the one below does not.
const DEBIAN_DIR: &str = "/usr/lib/rabbitmq/bin";

/// Finds the start script.
pub fn find() -> Option<PathBuf> {
    let plain = PathBuf::from(DEBIAN_DIR).join("rabbitmq-server");
    let found = std::env::var_os("RABBITMQ_SERVER").is_none() && plain.is_file();
    if found { Some(plain) } else { find_program("RABBITMQ_SERVER", "rabbitmq-server", &[]) }
}

/// The version is in the name of the directory with the libraries.
pub fn version(_program: &Path) -> Option<String> {
    std::fs::read_dir("/usr/lib/rabbitmq/lib").ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("rabbitmq_server-").map(|version| format!("RabbitMQ {version}"))
    })
}

/// One node with its defaults.
///
/// # Errors
/// When `epmd` of Erlang is missing.
pub fn launch(site: &Site<'_>) -> Result<Launch, BenchError> {
    let epmd = find_program("EPMD", "epmd", &[]);
    let epmd = epmd.ok_or_else(|| BenchError::Usage("RabbitMQ needs Erlang's epmd".into()))?;
    let [port, dist_port, epmd_port] = site.ports;
    let dir = |name: &str| site.dir.join(name).display().to_string();
    let env = [
        ("HOME", dir("")),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
        ("ERL_EPMD_PORT", epmd_port.to_string()),
        ("RABBITMQ_NODENAME", "bench@localhost".to_owned()),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
        ("RABBITMQ_NODE_PORT", port.to_string()),
        ("RABBITMQ_DIST_PORT", dist_port.to_string()),
        ("RABBITMQ_MNESIA_BASE", dir("data")),
        ("RABBITMQ_LOG_BASE", dir("logs")),
        ("RABBITMQ_LOGS", "-".to_owned()),
        ("RABBITMQ_CONF_ENV_FILE", dir("rabbitmq-env.conf")),
        ("RABBITMQ_CONFIG_FILE", dir("rabbitmq.conf")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", dir("enabled_plugins")),
    ];
    Ok(Launch {
        files: vec![
            ("rabbitmq-env.conf".into(), String::new()),
            ("rabbitmq.conf".into(), "listeners.tcp.1 = 127.0.0.1:".to_owned() + &port.to_string()),
            ("enabled_plugins".into(), "[].".into()),
        ],
        beside: vec![vec![epmd.display().to_string()]],
        command: vec![site.program.display().to_string()],
        env: env.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        url: format!("amqp://guest:guest@127.0.0.1:{port}/%2f"),
        port: Some(port),
        stop_signal: libc::SIGTERM,
        ..Launch::default()
    })
}
