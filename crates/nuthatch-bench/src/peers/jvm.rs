//! Kafka, started from the jars that Maven brings.

use std::path::{Path, PathBuf};

use super::catalog::has_files;
use super::{Launch, Site, home_dir};
use crate::harness::BenchError;

/// Any 16 bytes in the form Kafka wants; every start has a new directory, so it need not differ.
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qk";

/// The directory with Kafka's jars: `KAFKA_LIBS`, else `kafka` in the directory of the workbench.
pub fn find_kafka() -> Option<PathBuf> {
    let dir =
        std::env::var_os("KAFKA_LIBS").map_or_else(|| home_dir().join("kafka"), PathBuf::from);
    (has_files(&dir, "jar") && java().is_some()).then_some(dir)
}

fn java() -> Option<PathBuf> {
    super::find_program("JAVA", "java", &[])
}

/// The version is in the name of the main jar.
pub fn kafka_version(dir: &Path) -> Option<String> {
    std::fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_prefix("kafka_2.13-")?.strip_suffix(".jar")?;
        Some(format!("Kafka {version}"))
    })
}

/// One node that is broker and controller.
///
/// # Errors
/// When there is no Java.
pub fn kafka(site: &Site<'_>) -> Result<Launch, BenchError> {
    let java = java().ok_or_else(|| BenchError::Usage("Kafka needs a Java on the PATH".into()))?;
    let [port, controller, _] = site.ports;
    let properties = format!(
        "process.roles=broker,controller\nnode.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={}\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\nmessage.max.bytes=8388608\n\
         replica.fetch.max.bytes=8388608\n",
        site.dir.join("data").display()
    );
    let config = site.dir.join("server.properties").display().to_string();
    let class_path = format!("{}/*", site.program.display());
    let run = |main: &[&str]| -> Vec<String> {
        let mut command = vec![java.display().to_string()];
        command.extend(["-Xmx1g", "-XX:+UseG1GC", "-cp", &class_path].map(str::to_owned));
        command.extend(main.iter().map(ToString::to_string));
        command
    };
    let format = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", &config];
    Ok(Launch {
        files: vec![("server.properties".into(), properties)],
        before: vec![run(&format)],
        command: run(&["kafka.Kafka", &config]),
        url: format!("127.0.0.1:{port}"),
        port: Some(port),
        stop_signal: libc::SIGTERM,
        ..Launch::default()
    })
}
